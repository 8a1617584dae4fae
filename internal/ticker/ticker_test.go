package ticker

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestEvery calls functions of two intervals until they are stopped.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tick Ticker
		var calls [3]int
		count := func(i int) func(Tick) int {
			return func(at Tick) int {
				calls[i]++
				if at.Late != 0 || !at.Now.Equal(time.Now()) {
					t.Errorf("task %d is called at %v, %v late", i, at.Now, at.Late)
				}
				return 0
			}
		}
		tasks := []*Task{
			tick.Every(time.Second, count(0)), tick.Every(time.Second, count(1)), tick.Every(3*time.Second, count(2)),
		}
		if n := len(tick.groups); n != 2 {
			t.Errorf("%d timers for two intervals", n)
		}
		after := func(d time.Duration, want [3]int) {
			t.Helper()
			time.Sleep(d + time.Millisecond)
			synctest.Wait()
			if calls != want {
				t.Errorf("%v calls, want %v", calls, want)
			}
			calls = [3]int{}
		}
		after(9*time.Second, [3]int{9, 9, 3})
		tasks[0].Stop()
		tasks[0].Stop()
		after(3*time.Second, [3]int{0, 3, 1})
		tasks[1].Stop()
		tasks[2].Stop()
		after(time.Minute, [3]int{})
		(*Task)(nil).Stop()
		if len(tick.groups) != 0 {
			t.Errorf("timers that nobody needs: %v", tick.groups)
		} // and no goroutine is left: the synctest bubble would hang
	})
}

// TestLate delays a call for longer than the interval. It expects the next call to have its
// delay, the calls in between to be left out, and later calls to be in time.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tick Ticker
		var late []time.Duration
		began := time.Now()
		slow := tick.Every(time.Second, func(Tick) int {
			if time.Since(began) == 4*time.Second {
				time.Sleep(2700 * time.Millisecond)
			}
			return 0
		})
		defer slow.Stop()
		task := tick.Every(time.Second, func(at Tick) int {
			if at.Now.Sub(began) >= 4*time.Second {
				late = append(late, at.Late)
			}
			return 0
		})
		defer task.Stop()
		time.Sleep(8500 * time.Millisecond)
		synctest.Wait()
		want := []time.Duration{0, 1700 * time.Millisecond, 0, 0}
		if len(late) != len(want) {
			t.Fatalf("%v late, want %v", late, want)
		}
		for i := range want {
			if late[i] != want[i] {
				t.Errorf("%v late, want %v", late, want)
			}
		}
	})
}

// TestStopWaits stops a task in the middle of a call. It expects Stop to wait for the call.
func TestStopWaits(t *testing.T) {
	var tick Ticker
	var going atomic.Bool
	entered, release := make(chan struct{}), make(chan struct{})
	task := tick.Every(time.Millisecond, func(Tick) int {
		going.Store(true)
		close(entered) // a second call would panic
		<-release
		going.Store(false)
		return 0
	})
	<-entered
	time.AfterFunc(10*time.Millisecond, func() { close(release) })
	task.Stop()
	if going.Load() {
		t.Error("it was stopped and goes on")
	}
}

// TestStopAnother stops a task from the call of another task just before its own. It expects no
// call.
func TestStopAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tick Ticker
		var second atomic.Pointer[Task]
		first := tick.Every(time.Second, func(Tick) int { second.Load().Stop(); return 0 })
		second.Store(tick.Every(time.Second, func(Tick) int { t.Error("it was called after its end"); return 0 }))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		first.Stop()
	})
}

// TestRest has a function rest for some calls. It stops this function and the only other one
// during a rest.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tick Ticker
		began := time.Now()
		rests := []int{2, 0, -1, 1, MaxRest, MaxRest + 1, 5}
		var calls []Tick
		task := tick.Every(time.Second, func(at Tick) int {
			calls = append(calls, at)
			return rests[len(calls)-1]
		})
		var others int
		other := tick.Every(time.Second, func(Tick) int { others++; return 0 })
		time.Sleep(75 * time.Second)
		synctest.Wait()
		var at []int
		for _, c := range calls {
			at = append(at, int(c.Now.Sub(began).Round(time.Second)/time.Second))
			if at[len(at)-1] != int(c.N)+at[0] {
				t.Errorf("call %d came after %d s", c.N, at[len(at)-1])
			}
		}
		first := at[0]
		for i, after := range []int{0, 3, 4, 5, 7, 7 + wheel, 7 + 2*wheel} {
			if at[i] != first+after {
				t.Fatalf("called after %v s", at)
			}
		}
		if len(at) != 7 || others != 75+1-first {
			t.Errorf("called after %v s, and the other one %d times", at, others)
		}
		task.Stop()
		other.Stop()
		time.Sleep(time.Minute)
		if len(calls) != 7 || len(tick.groups) != 0 {
			t.Errorf("%d calls, %v", len(calls), tick.groups)
		}
	})
}

// TestWake wakes a task in the middle of its rest, within its call, and before the rest of
// another one ends.
func TestWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tick Ticker
		var calls atomic.Int32
		var within atomic.Pointer[Task]
		task := tick.Every(time.Second, func(Tick) int {
			calls.Add(1)
			within.Swap(nil).Wake() // wakes only once
			return MaxRest
		})
		other := tick.Every(time.Second, func(Tick) int { return MaxRest })
		after := func(d time.Duration, want int32) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if n := calls.Swap(0); n != want {
				t.Errorf("%d calls in %v, want %d", n, d, want)
			}
		}
		after(1500*time.Millisecond, 1)
		after(5*time.Second, 0)
		task.Wake()
		task.Wake()
		after(time.Second, 1)
		after(MaxRest*time.Second, 0) // the longest possible rest
		after(time.Second, 1)
		within.Store(task)
		task.Wake()
		after(2*time.Second, 2)
		after(MaxRest*time.Second, 0)
		other.Stop()
		task.Wake()
		task.Stop()
		task.Wake()
		(*Task)(nil).Wake()
		after(time.Minute, 0)
		if len(tick.groups) != 0 {
			t.Errorf("%v is left", tick.groups)
		}
	})
}

// TestNobodyIsWoken has all functions rest, until different calls. It expects the goroutine not
// to be woken before the first of these. A function that is woken during its rest is called at
// the same time, and with the same number, as without the rests.
func TestNobodyIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tick Ticker
		began := time.Now()
		calls := make(map[int][]int)
		every := func(name, rest int) *Task {
			return tick.Every(time.Second, func(at Tick) int {
				after := int(at.Now.Sub(began) / time.Second)
				if at.Late != 0 || int(at.N) != after-1 || tick.Clock(time.Second).Now() != at.Now.Sub(began) {
					t.Errorf("call %d after %d s, %v late, at %v of the clock", at.N, after, at.Late,
						tick.Clock(time.Second).Now())
				}
				calls[name] = append(calls[name], after)
				return rest
			})
		}
		ten, twenty := every(10, 9), every(20, 19)
		woken := func() uint64 {
			synctest.Wait()
			tick.mu.Lock()
			defer tick.mu.Unlock()
			return tick.groups[time.Second].next
		}
		at := func(d time.Duration) { time.Sleep(d - time.Since(began)) }
		at(1500 * time.Millisecond)
		before := woken()
		at(10900 * time.Millisecond)
		if n := woken(); n != before {
			t.Errorf("%d calls that nobody waited for were made", n-before)
		}
		at(12500 * time.Millisecond)
		twenty.Wake()
		at(16200 * time.Millisecond)
		third := every(7, 6)
		at(40 * time.Second)
		synctest.Wait()
		want := map[int][]int{10: {1, 11, 21, 31}, 20: {1, 13, 33}, 7: {17, 24, 31, 38}}
		for name, times := range want {
			if !slices.Equal(calls[name], times) {
				t.Errorf("%d was called after %v s, want %v", name, calls[name], times)
			}
		}
		for _, k := range []*Task{ten, twenty, third} {
			k.Stop()
		}
	})
}

// TestOften reads the clock frequently, and rarely, while all functions rest. It expects the
// goroutine to be woken for each call only while the reads are frequent, and the time of the
// last call in either case.
func TestOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tick Ticker
		clock, began := tick.Clock(time.Second), time.Now()
		task := tick.Every(time.Second, func(Tick) int { return MaxRest })
		defer task.Stop()
		woken := func() uint64 {
			synctest.Wait()
			tick.mu.Lock()
			defer tick.mu.Unlock()
			return tick.groups[time.Second].next
		}
		reads := func(n int) {
			t.Helper()
			for range n {
				if now, want := clock.Often(), time.Since(began).Truncate(time.Second); now != want {
					t.Fatalf("it is %v by the clock, want %v", now, want)
				}
			}
		}
		time.Sleep(1500 * time.Millisecond)
		for range 4 {
			reads(often/4 - 1)
			time.Sleep(time.Second)
		}
		if n := woken(); n != 1 {
			t.Errorf("%d calls counted at which nobody is to be woken", n-1)
		}
		reads(often)
		for n := uint64(5); n < 10; n++ {
			if got := woken(); got != n {
				t.Errorf("%d calls counted, want %d", got, n)
			}
			time.Sleep(time.Second)
			reads(1)
		}
		time.Sleep(2 * time.Second) // until the call after the last read, and another one
		n := woken()
		time.Sleep(5 * time.Second)
		reads(1)
		if more := woken() - n; more != 0 {
			t.Errorf("%d calls counted since nobody reads the clock", more)
		}
	})
}

// TestClock reads the clock of an interval while there are functions, while they are delayed for
// longer than the clock counts, and while there are none.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tick Ticker
		clock := tick.Clock(time.Second)
		hold := time.Duration(0)
		begin := func() *Task {
			return tick.Every(time.Second, func(Tick) int { time.Sleep(hold); return MaxRest })
		}
		passes := func(d, want time.Duration) {
			t.Helper()
			before := clock.Now()
			time.Sleep(d)
			synctest.Wait()
			if got := clock.Now() - before; got != want {
				t.Errorf("it went on by %v in %v, want %v", got, d, want)
			}
		}
		time.Sleep(time.Millisecond)
		passes(time.Minute, 0)
		task := begin()
		passes(999*time.Millisecond, time.Second) // until the first call
		passes(9*time.Second, 9*time.Second)
		task.Stop()
		passes(time.Minute, 0)
		hold = 7500 * time.Millisecond
		task = begin()
		passes(time.Second, time.Second)
		// The second call is 6.5 s late, the third one is in time.
		passes(8*time.Second, time.Second)
		passes(5*time.Second, 5*time.Second)
		hold = 0
		task.Stop()
		if tick.Clock(time.Second) != clock || tick.Clock(2*time.Second) == clock {
			t.Error("another clock for the same interval, or one for two")
		}
	})
}

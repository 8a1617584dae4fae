package ticker

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestEvery has functions of two intervals called, for as long as they are wanted.
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
		} // and no goroutine, upon which the bubble would hang
	})
}

// TestLate holds up the calls for longer than the interval: the next one knows how
// late it is, those between are left out, and then they come in time again.
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

// TestStopWaits stops a task in the middle of a call.
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

// TestStopAnother stops a task from within the call before its own.
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

// TestRest has a function leave out calls, in the middle of which it, or the only other one,
// is stopped.
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

// TestWake ends rests: in the middle, in the call itself and before another one's end.
func TestWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tick Ticker
		var calls atomic.Int32
		var within atomic.Pointer[Task]
		task := tick.Every(time.Second, func(Tick) int {
			calls.Add(1)
			within.Swap(nil).Wake() // once
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
		after(MaxRest*time.Second, 0) // a rest as long as any
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

// TestClock looks at the clock of an interval while there are functions, while they are
// held up for longer than counts, and while there are none.
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
		passes(999*time.Millisecond, 999*time.Millisecond) // to the first call
		passes(9*time.Second, 9*time.Second)
		task.Stop()
		passes(time.Minute, 0)
		hold = 7500 * time.Millisecond
		task = begin()
		passes(time.Second, time.Second)
		// The second call is 6.5 s late.
		passes(8*time.Second, 500*time.Millisecond)
		passes(5*time.Second, 5*time.Second)
		hold = 0
		task.Stop()
		if tick.Clock(time.Second) != clock || tick.Clock(2*time.Second) == clock {
			t.Error("another clock for the same interval, or one for two")
		}
	})
}

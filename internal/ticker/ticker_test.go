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
		count := func(i int) func(Tick) {
			return func(at Tick) {
				calls[i]++
				if at.Late != 0 || !at.Now.Equal(time.Now()) {
					t.Errorf("task %d is called at %v, %v late", i, at.Now, at.Late)
				}
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
		slow := tick.Every(time.Second, func(Tick) {
			if time.Since(began) == 4*time.Second {
				time.Sleep(2700 * time.Millisecond)
			}
		})
		defer slow.Stop()
		task := tick.Every(time.Second, func(at Tick) {
			if at.Now.Sub(began) >= 4*time.Second {
				late = append(late, at.Late)
			}
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
	task := tick.Every(time.Millisecond, func(Tick) {
		going.Store(true)
		close(entered) // a second call would panic
		<-release
		going.Store(false)
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
		first := tick.Every(time.Second, func(Tick) { second.Load().Stop() })
		second.Store(tick.Every(time.Second, func(Tick) { t.Error("it was called after its end") }))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		first.Stop()
	})
}

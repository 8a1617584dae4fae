package spin

import "time"

// shortest is the length to which a Window of length 0 grows.
const shortest = 10 * time.Microsecond

// Window determines for how long one worker polls before it sleeps. Its length grows when the
// worker has slept for less than the longest time that it may poll, and becomes 0 when the worker
// has slept for longer. The kernel uses the same method for virtual processors
// (Documentation/virt/kvm/halt-polling.rst). The zero value has length 0. Only one goroutine may
// use a Window.
type Window struct {
	length time.Duration
	slept  time.Time // when the sleep began; zero: there was none
}

// Length returns for how long to poll now, at most longest.
func (w *Window) Length(longest time.Duration) time.Duration { return min(w.length, longest) }

// Sleep records that the worker is about to sleep.
func (w *Window) Sleep(now time.Time) { w.slept = now }

// Wake records that the worker has slept. longest is the longest time that it may poll.
func (w *Window) Wake(now time.Time, longest time.Duration) {
	switch took := now.Sub(w.slept); {
	case w.slept.IsZero():
		return
	case took > longest:
		w.length = 0
	case took > w.length || w.length == 0:
		w.length = min(max(2*w.length, shortest), longest)
	}
	w.slept = time.Time{}
}

package spin

import "time"

// shortest is the first length of a Window that has none.
const shortest = 10 * time.Microsecond

// Window is for how long one worker polls before it sleeps. It grows when the worker has
// slept for less than the longest time that it may poll, and there is none when it has slept
// for longer: as the kernel has its virtual processors poll
// (Documentation/virt/kvm/halt-polling.rst). The zero value is none. It is for one goroutine.
type Window struct {
	length time.Duration
	slept  time.Time // when the sleep began; zero: there was none
}

// Length is for how long to poll now, at most longest.
func (w *Window) Length(longest time.Duration) time.Duration { return min(w.length, longest) }

// Sleep says that the worker is about to sleep.
func (w *Window) Sleep(now time.Time) { w.slept = now }

// Wake says that it has slept.
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

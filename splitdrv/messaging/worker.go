package messaging

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/cpus"
	"github.com/splitnic/splitnic/internal/epoll"
)

// Role is what a worker does for its channel.
type Role string

// The roles.
const (
	RoleControl  Role = "control"
	RoleSender   Role = "sender"
	RoleReceiver Role = "receiver"
	RoleBoth     Role = "sender and receiver"
)

func (h *Handler) equal(o *Handler) bool {
	return h.Number == o.Number && slices.Equal(h.CPUs, o.CPUs) && h.Priority == o.Priority && h.Budget == o.Budget &&
		h.Spin == o.Spin && h.Adaptive == o.Adaptive
}

// ownThread reports whether the workers have threads of their own.
func (h *Handler) ownThread() bool { return len(h.CPUs) > 0 || h.Priority != 0 }

// bind puts a thread on the processors and gives it the priority. What is not
// configured becomes as it was when the process began.
func (h *Handler) bind(tid int) error {
	list, nice := h.CPUs, h.Priority
	if len(list) == 0 {
		list = cpus.Allowed()
	}
	if nice == 0 {
		nice = ownPriority()
	}
	mask := list.Set()
	return errors.Join(
		os.NewSyscallError("sched_setaffinity", unix.SchedSetaffinity(tid, &mask)),
		os.NewSyscallError("setpriority", unix.Setpriority(unix.PRIO_PROCESS, tid, nice)))
}

// worker is what a goroutine of a channel has of the channel's handler: that of a
// sender, of a receiver, of both, or the control channel's. Who changes the
// handler binds the worker's thread from outside. The goroutine itself does only
// what nobody else can: it locks its thread, and lets it go (bindThread).
type worker struct {
	mu      *sync.Mutex // of the handlers: guards placed
	channel int
	role    Role
	wake    *epoll.Event

	// Of the handler, written by who changes it.
	budget    atomic.Int64
	ownThread atomic.Bool

	polling polling

	// The goroutine's own.
	used   int  // of the budget
	locked bool // to its thread

	completions, wakeups, exhausted atomic.Uint64

	placed placement
}

// placement is where a worker is.
type placement struct {
	Handler
	from tally // what it had counted when it came to the handler
	tid  int   // of the thread that it is locked to, 0 if there is none
	err  error // of binding that
}

// tally is what workers count.
type tally struct{ completions, wakeups, exhausted uint64 }

func (t tally) plus(o tally) tally {
	return tally{t.completions + o.completions, t.wakeups + o.wakeups, t.exhausted + o.exhausted}
}

func (t tally) minus(o tally) tally {
	return tally{t.completions - o.completions, t.wakeups - o.wakeups, t.exhausted - o.exhausted}
}

func (w *worker) tally() tally {
	return tally{w.completions.Load(), w.wakeups.Load(), w.exhausted.Load()}
}

// configure puts a configuration in force. What the kernel refuses is shown in
// the stats: frames matter more. The caller holds the handlers' lock.
func (w *worker) configure(h *Handler) {
	p := &w.placed
	p.Handler = *h
	w.budget.Store(int64(h.Budget))
	w.polling.configure(h)
	own := h.ownThread()
	if p.tid != 0 {
		p.err = h.bind(p.tid)
		own = own || p.err != nil // one that is not as it was stays the worker's, and ends with it
	}
	if w.ownThread.Swap(own) != own {
		w.wake.Set()
	}
}

// bindThread gives the worker a thread of its own, or gives that back, if its handler
// has come to want that. It is called before the worker sleeps, and when its
// budget is exhausted.
func (w *worker) bindThread() {
	if w.ownThread.Load() == w.locked {
		return
	}
	p := &w.placed
	w.mu.Lock()
	defer w.mu.Unlock()
	switch own := w.ownThread.Load(); {
	case own == w.locked:
	case own:
		runtime.LockOSThread()
		w.locked = true
		p.tid = unix.Gettid()
		p.err = p.bind(p.tid)
	default: // it is as it was
		p.tid = 0
		w.locked = false
		runtime.UnlockOSThread()
	}
}

// release gives back the worker's thread, at its end.
func (w *worker) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ownThread.Store(false)
	if !w.locked {
		return
	}
	if (&Handler{}).bind(w.placed.tid) == nil {
		runtime.UnlockOSThread()
	}
	w.locked, w.placed.tid, w.placed.err = false, 0, nil
}

// untilIdle takes one step after the other, each of which reports whether there was
// anything to do, until there is not: for as long as the handler polls, and once more
// when the next completion raises an event, because what had completed before raises
// none. It reports whether the session has ended.
func (w *worker) untilIdle(n *notification, stopped *atomic.Bool, step func() (bool, error)) (ended bool, err error) {
	for !stopped.Load() {
		worked, err := step()
		if !worked && err == nil {
			if length := w.polling.begin(); length > 0 {
				for end := time.Now().Add(length); !worked && err == nil && time.Now().Before(end) && !stopped.Load(); {
					worked, err = step()
				}
				w.polling.end()
			}
		}
		if !worked && err == nil {
			w.wake.Clear() // before the look at what it is raised for
			w.bindThread()
			if err = n.arm(); err == nil {
				worked, err = step()
			}
		}
		if err != nil {
			return true, err
		}
		if !worked {
			w.polling.sleep()
			return false, nil
		}
	}
	return true, nil
}

// allowance is how many completions, of n at most, the worker may take from its
// queue at a time. The budget may have become smaller than what is used of it.
func (w *worker) allowance(n int) int { return min(n, max(int(w.budget.Load())-w.used, 1)) }

// took counts completions that came from the worker's queue.
func (w *worker) took(n int) {
	if n > 0 {
		w.completions.Add(uint64(n))
	}
}

// woke counts an end of sleep, with which the budget is whole again.
func (w *worker) woke() {
	w.used = 0
	w.wakeups.Add(1)
	w.polling.wake()
}

// spend takes n from the budget. If that is exhausted other workers get their turn,
// those of other sessions too, it is whole again, and spend returns true: the worker
// is to look at what else it has to do. Without that a worker that always finds
// something goes on until the runtime interrupts it, after ten milliseconds, while many
// others wait.
func (w *worker) spend(n int) bool {
	if w.used += n; w.used < int(w.budget.Load()) {
		return false
	}
	w.used = 0
	w.exhausted.Add(1)
	w.bindThread()
	if w.role == RoleBoth {
		return true // it polls, and gives way by the clock
	}
	if w.locked {
		// To threads on the same processor. Gosched would have this thread sleep,
		// and another one wake it.
		_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	} else {
		runtime.Gosched()
	}
	return true
}

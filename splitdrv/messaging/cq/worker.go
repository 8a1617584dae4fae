package cq

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

// Role is the role of a worker in its channel.
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

// ownThread reports whether each worker is locked to a thread.
func (h *Handler) ownThread() bool { return len(h.CPUs) > 0 || h.Priority != 0 }

// bind binds a thread to the handler's processors and sets its priority. Values that are
// not configured are reset to those at the start of the process.
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

// Worker is the part of a handler's configuration and statistics that belongs to one
// goroutine: a sender, a receiver, one that is both, or the control handler. A change of
// the handler binds the worker's thread from outside, by its thread id. Only the locking of
// the goroutine to a thread, and its unlocking, is left to the goroutine (BindThread).
type Worker struct {
	mu      *sync.Mutex // the handlers' lock: guards placed
	Channel int
	role    Role
	Wake    *epoll.Event

	// Written when the handler changes.
	budget    atomic.Int64
	ownThread atomic.Bool

	Polling polling

	// Used only by the goroutine.
	used   int  // used part of the budget
	locked bool // the goroutine is locked to its thread

	completions, wakeups, exhausted atomic.Uint64

	placed placement
}

// placement is the assignment of a worker to a handler.
type placement struct {
	Handler
	from tally // the worker's counts when it was assigned to the handler
	tid  int   // thread that the worker is locked to; 0: none
	err  error // error of binding the thread
}

type tally struct{ completions, wakeups, exhausted uint64 }

func (t tally) plus(o tally) tally {
	return tally{t.completions + o.completions, t.wakeups + o.wakeups, t.exhausted + o.exhausted}
}

func (t tally) minus(o tally) tally {
	return tally{t.completions - o.completions, t.wakeups - o.wakeups, t.exhausted - o.exhausted}
}

func (w *Worker) tally() tally {
	return tally{w.completions.Load(), w.wakeups.Load(), w.exhausted.Load()}
}

// configure applies a handler's configuration. If the kernel refuses a part of it, the
// worker goes on, and the statistics have the error. The caller holds the handlers' lock.
func (w *Worker) configure(h *Handler) {
	p := &w.placed
	p.Handler = *h
	w.budget.Store(int64(h.Budget))
	w.Polling.configure(h)
	own := h.ownThread()
	if p.tid != 0 {
		p.err = h.bind(p.tid)
		own = own || p.err != nil // a thread that could not be reset stays locked, and ends with the worker
	}
	if w.ownThread.Swap(own) != own {
		w.Wake.Set()
	}
}

// KeepBound binds the worker's thread again if it may run on other processors than the handler
// has. The kernel lets a thread run anywhere when its last processor goes offline, and does not
// bind it again when the processor is back. Until then the statistics have the error. The
// caller holds the handlers' lock.
func (w *Worker) keepBound() {
	p := &w.placed
	if p.tid == 0 || len(p.CPUs) == 0 {
		return
	}
	var have unix.CPUSet
	if want := p.CPUs.Set(); p.err != nil || unix.SchedGetaffinity(p.tid, &have) != nil || have != want {
		p.err = p.bind(p.tid)
	}
}

// BindThread locks the goroutine to a thread, or unlocks it, if the handler's configuration
// has changed accordingly. The worker calls it before it sleeps, and when its budget is
// exhausted.
func (w *Worker) BindThread() {
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
	default: // configure has reset the thread
		p.tid = 0
		w.locked = false
		runtime.UnlockOSThread()
	}
}

// Release unlocks the worker from its thread, when the worker ends.
func (w *Worker) Release() {
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

// UntilIdle repeats step until it reports that there is nothing to do. It polls on for the
// handler's time (advanced.spin). Then it arms the notification and calls step once more, because
// completions from before raise no event. It reports whether the session has ended.
func (w *Worker) UntilIdle(n *Notification, stopped *atomic.Bool, step func() (bool, error)) (ended bool, err error) {
	for !stopped.Load() {
		worked, err := step()
		if !worked && err == nil {
			if length := w.Polling.begin(); length > 0 {
				for end := time.Now().Add(length); !worked && err == nil && time.Now().Before(end) && !stopped.Load(); {
					worked, err = step()
				}
				w.Polling.end()
			}
		}
		if !worked && err == nil {
			w.Wake.Clear() // before the last step, so that no wake-up is lost
			w.BindThread()
			if err = n.Arm(); err == nil {
				worked, err = step()
			}
		}
		if err != nil {
			return true, err
		}
		if !worked {
			w.Polling.sleep()
			return false, nil
		}
	}
	return true, nil
}

// Allowance returns how many completions, at most n, the worker may poll in one call. It is
// at least 1, because a change of the handler can make the budget smaller than its used part.
func (w *Worker) Allowance(n int) int { return min(n, max(int(w.budget.Load())-w.used, 1)) }

// Took counts polled completions.
func (w *Worker) Took(n int) {
	if n > 0 {
		w.completions.Add(uint64(n))
	}
}

// Woke counts a wake-up and resets the budget.
func (w *Worker) Woke() {
	w.used = 0
	w.wakeups.Add(1)
	w.Polling.wake()
}

// Spend uses n of the budget. If the budget is exhausted, spend resets it, yields to the
// other workers of all sessions, and returns true: the worker should check its other
// work. Without the yield, a worker that always finds work would run until the runtime
// preempts it, after ten milliseconds, while the others wait.
func (w *Worker) Spend(n int) bool {
	if w.used += n; w.used < int(w.budget.Load()) {
		return false
	}
	w.used = 0
	w.exhausted.Add(1)
	w.BindThread()
	if w.role == RoleBoth {
		return true // such a worker polls, and yields once in a while (see poll.go of messaging)
	}
	if w.locked {
		// Yield to threads on the same processor. Gosched would put this thread to sleep
		// and wake another one.
		_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	} else {
		runtime.Gosched()
	}
	return true
}

package messaging

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/cpus"
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

// duty is a handler as it is for the workers of one channel. It does not change.
type duty struct {
	Handler
	mask   unix.CPUSet
	shared bool // there are other channels with the handler
}

// bound reports whether the duty takes a thread of the worker's own.
func (d *duty) bound() bool { return len(d.CPUs) > 0 || d.Priority != 0 }

func (d *duty) equal(o *duty) bool {
	return d.Number == o.Number && d.shared == o.shared && slices.Equal(d.CPUs, o.CPUs) &&
		d.Priority == o.Priority && d.Budget == o.Budget && d.Spin == o.Spin
}

// worker is what makes a goroutine of a channel follow the channel's handler:
// that of a sender, of a receiver, of both, or the control channel's. All but
// wanted, the counters and post is the goroutine's own.
type worker struct {
	handlers *handlers
	channel  int
	role     Role
	wake     *event
	wanted   atomic.Pointer[duty] // to be followed at the next turn

	duty  *duty // in force
	used  int   // of the budget
	bound bool  // to a thread

	completions, wakeups, exhausted atomic.Uint64

	post post // guarded by handlers.mu
}

// post is what others know about where a worker is.
type post struct {
	duty *duty
	tid  int // of its own thread, 0 if it has none
	err  error
	from tally // what it had counted when it came
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

// turn is called at the beginning of each round of a worker: it follows what
// has changed.
func (w *worker) turn() {
	if d := w.wanted.Load(); d != w.duty {
		w.follow(d)
	}
}

// called reports whether turn has something to do.
func (w *worker) called() bool { return w.wanted.Load() != w.duty }

// follow puts a duty in force. What the kernel refuses is shown in the stats:
// frames matter more.
func (w *worker) follow(d *duty) {
	w.duty, w.used = d, 0
	tid, err := w.bind(d)
	h := w.handlers
	h.mu.Lock()
	defer h.mu.Unlock()
	now := w.tally()
	if n := w.post.duty.Number; n >= 0 {
		h.past[n] = h.past[n].plus(now.minus(w.post.from))
	}
	w.post = post{duty: d, tid: tid, err: err, from: now}
}

// bind gives the worker a thread of its own, on the duty's processors and with
// its priority; or, if the duty does not ask for that, gives the thread back as
// it was. One that cannot be given back so stays the worker's, and ends with it.
func (w *worker) bind(d *duty) (tid int, err error) {
	if !d.bound() && !w.bound {
		return 0, nil
	}
	if !w.bound {
		runtime.LockOSThread()
		w.bound = true
	}
	own := cpus.Allowed().Set()
	mask, nice := &own, ownPriority()
	if len(d.CPUs) > 0 {
		mask = &d.mask
	}
	if d.Priority != 0 {
		nice = d.Priority
	}
	tid = unix.Gettid()
	err = errors.Join(
		os.NewSyscallError("sched_setaffinity", unix.SchedSetaffinity(0, mask)),
		os.NewSyscallError("setpriority", unix.Setpriority(unix.PRIO_PROCESS, 0, nice)))
	if !d.bound() && err == nil {
		w.bound = false
		runtime.UnlockOSThread()
		return 0, nil
	}
	return tid, err
}

// release gives back the worker's thread, at its end.
func (w *worker) release() { w.follow(&duty{Handler: Handler{Number: w.duty.Number, Budget: 1}}) }

// ownPriority is the nice value that this process had when it was first asked
// for. Later its main thread may be a worker's.
var ownPriority = sync.OnceValue(func() int { return niceOf(0) })

// niceOf is the nice value of thread tid, 0 for the calling one. The system
// call returns 20 minus that (getpriority(2)).
func niceOf(tid int) int {
	n, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
	if err != nil {
		return 0 // as it is unless somebody has changed it
	}
	return 20 - n
}

// tryPriority tries to go from one priority to the other, on a thread that ends
// with that, unless it can be as it was: 0 is the process's own priority.
func tryPriority(from, to int) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		set := func(n int) error {
			if n == 0 {
				n = ownPriority()
			}
			return os.NewSyscallError("setpriority", unix.Setpriority(unix.PRIO_PROCESS, 0, n))
		}
		err := set(from)
		if err == nil {
			err = set(to)
		}
		if set(0) == nil {
			runtime.UnlockOSThread()
		}
		result <- err
	}()
	return <-result
}

// allowance is how many completions, of n at most, the worker may take from its
// queue at a time.
func (w *worker) allowance(n int) int { return min(n, w.duty.Budget-w.used) }

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
}

// spend takes n from the budget. If that is exhausted the other workers of the
// handler get their turn, it is whole again, and spend returns true: the worker
// is to look at what else it has to do.
func (w *worker) spend(n int) bool {
	if w.used += n; w.used < w.duty.Budget {
		return false
	}
	w.used = 0
	w.exhausted.Add(1)
	switch {
	case w.bound:
		// To threads on the same processor. Gosched would have this thread sleep,
		// and another one wake it.
		_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	case w.duty.shared:
		runtime.Gosched()
	}
	return true
}

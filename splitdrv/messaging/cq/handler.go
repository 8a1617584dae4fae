package cq

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/cpus"
)

const (
	// MaxQueues is the largest number of data channels of a session.
	MaxQueues = 16
	// MaxHandlers is the largest number of a completion-queue handler.
	MaxHandlers = 2 * MaxQueues
	// DefaultBudget is the default of Handler.Budget.
	DefaultBudget = 256
	// MaxBudget is the largest budget.
	MaxBudget = 1 << 16
	// MaxSpin is the longest time that a handler polls an empty queue.
	MaxSpin = time.Second
	// AdaptiveSpin is the usual Handler.Spin of an adaptive handler: longer than a round
	// trip between two machines, and not much longer than going to sleep and waking up take.
	AdaptiveSpin = 100 * time.Microsecond
	// ControlHandler is the number of the control channel's handler.
	ControlHandler = 0
	// Unassigned, as the handler's number of a data channel, means that the channel has no
	// handler: its workers run on any processor, with the priority of the process and the
	// default budget, and do not poll.
	Unassigned = -1
)

var (
	// ErrHandler is wrapped by errors about impossible handlers and assignments.
	ErrHandler = errors.New("impossible completion-queue handler")
	// ErrProcessor is wrapped by errors about processors that this process
	// cannot use.
	ErrProcessor = errors.New("processor that cannot be used")
	// ErrPriority is wrapped by errors about priorities that this process may
	// not give its threads.
	ErrPriority = errors.New("priority that is not permitted")
)

// Handler is a completion-queue handler: the settings shared by the workers of all channels
// that are assigned to it. Handler 0 is for the control channel, which never waits behind
// data; all others are for data channels.
//
// The completion queues of a channel are created on the completion vector with the number
// of the handler, modulo the number of vectors. They stay there during the session, because
// verbs cannot move a completion queue. All other settings take effect immediately when an
// assignment or the handler changes.
type Handler struct {
	Number int `json:"number"`
	// CPUs are the processors that the workers' threads are bound to; empty: any.
	CPUs cpus.List `json:"processors"`
	// Priority is the nice value of the workers' threads, -20 to 19; 0 is the value of the
	// process. A lower value than that requires CAP_SYS_NICE or RLIMIT_NICE.
	Priority int `json:"priority"`
	// Budget is the number of completions, or of frames of a sender, that a worker handles
	// in a row before it checks its other work and yields to the workers of other channels
	// and sessions; default DefaultBudget.
	Budget int `json:"budget"`
	// Spin is how long a receiver, or the control handler, polls an empty completion queue
	// before it arms the queue and sleeps.
	Spin time.Duration `json:"spin_ns"`
	// Adaptive makes each worker choose how long to poll, at most Spin. It polls only if its
	// recent sleeps were shorter, only after small frames, and only while there are more
	// idle processors than polling workers (package spin).
	Adaptive bool `json:"adaptive"`
}

// Handling has the handlers of a session and the assignment of its channels.
type Handling struct {
	Handlers []Handler `json:"handlers"` // by number, beginning with that of the control channel
	Assigned []int     `json:"assigned"` // handlers of data channels 1, 2 …
}

// HandlerChange is a change of handlers and assignments. What is nil stays as it is.
type HandlerChange struct {
	Assign   map[int]int    `json:"assign,omitempty"` // handlers of data channels
	Handlers []HandlerPatch `json:"handlers,omitempty"`
}

// HandlerPatch is a change of one handler. What is nil stays as it is.
type HandlerPatch struct {
	Number   int            `json:"number"`
	CPUs     *cpus.List     `json:"processors,omitempty"`
	Priority *int           `json:"priority,omitempty"`
	Budget   *int           `json:"budget,omitempty"`
	Spin     *time.Duration `json:"spin_ns,omitempty"`
	Adaptive *bool          `json:"adaptive,omitempty"`
}

// Initial returns the default handler of a data channel.
func (g *Handling) Initial(channel int) int { return 1 + (channel-1)%(len(g.Handlers)-1) }

func (g *Handling) of(channel int) *Handler {
	switch {
	case channel == 0:
		return &g.Handlers[ControlHandler]
	case channel <= len(g.Assigned) && g.Assigned[channel-1] == Unassigned:
		return &Handler{Number: Unassigned, Budget: DefaultBudget}
	case channel <= len(g.Assigned):
		return &g.Handlers[g.Assigned[channel-1]]
	default:
		return &g.Handlers[g.Initial(channel)]
	}
}

// Change returns g with a change applied. It returns an error if the result is impossible
// or not permitted.
func (g Handling) Change(ch HandlerChange) (Handling, error) {
	before := g
	g.Handlers, g.Assigned = slices.Clone(g.Handlers), slices.Clone(g.Assigned)
	for _, p := range ch.Handlers {
		if p.Number < 0 || p.Number >= len(g.Handlers) {
			return g, g.unknown(p.Number)
		}
		h := &g.Handlers[p.Number]
		if p.CPUs != nil {
			h.CPUs = slices.Clone(*p.CPUs)
		}
		patch(&h.Priority, p.Priority)
		patch(&h.Budget, p.Budget)
		patch(&h.Spin, p.Spin)
		patch(&h.Adaptive, p.Adaptive)
	}
	for _, channel := range slices.Sorted(maps.Keys(ch.Assign)) {
		if channel < 1 || channel > len(g.Assigned) {
			return g, fmt.Errorf("assign data channel %d: %w: there are channels 1 to %d", channel, ErrHandler, len(g.Assigned))
		}
		g.Assigned[channel-1] = ch.Assign[channel]
	}
	return g, g.Check(&before)
}

func patch[T any](value, to *T) {
	if to != nil {
		*value = *to
	}
}

func (g *Handling) unknown(number int) error {
	return fmt.Errorf("handler %d: %w: there are handlers 0, of the control channel, and 1 to %d", number, ErrHandler,
		len(g.Handlers)-1)
}

// Check returns an error if the handling is impossible, or if this process may not change
// to it from the one before; before is nil at the beginning.
func (g *Handling) Check(before *Handling) error {
	for i := range g.Handlers {
		if err := g.Handlers[i].check(); err != nil {
			return fmt.Errorf("handler %d: %w", i, err)
		}
	}
	for i, number := range g.Assigned {
		switch {
		case number == Unassigned:
		case number == ControlHandler:
			return fmt.Errorf("assign data channel %d: %w: handler %d is the control channel's alone", i+1, ErrHandler, number)
		case number < 0 || number >= len(g.Handlers):
			return fmt.Errorf("assign data channel %d: %w", i+1, g.unknown(number))
		}
	}
	return g.permitted(before)
}

func (h *Handler) check() error {
	switch {
	case h.Budget < 1 || h.Budget > MaxBudget:
		return fmt.Errorf("%w: a budget of %d, must be 1 to %d", ErrHandler, h.Budget, MaxBudget)
	case h.Spin < 0 || h.Spin > MaxSpin:
		return fmt.Errorf("%w: polling for %v, must be 0 to %v", ErrHandler, h.Spin, MaxSpin)
	case h.Adaptive && h.Spin == 0:
		return fmt.Errorf("%w: it polls adaptively, for no time at most", ErrHandler)
	case h.Priority < -20 || h.Priority > 19:
		return fmt.Errorf("%w: %d, must be -20 (first) to 19 (last)", ErrPriority, h.Priority)
	}
	if strange := h.CPUs.Without(cpus.Allowed()); len(strange) > 0 {
		if online := cpus.Online(); online != nil && len(strange.Without(online)) > 0 {
			return fmt.Errorf("%w: %v is not there, or offline; this machine has %v", ErrProcessor, strange.Without(online),
				online)
		}
		return fmt.Errorf("%w: %v is outside this process's mask %v; widen that (taskset(1), CPUAffinity= of the service, the container's cpuset)", ErrProcessor, strange, cpus.Allowed())
	}
	return nil
}

// permitted tries whether this process may set the priorities of the handlers, and change
// the priority of each channel from that in before.
func (g *Handling) permitted(before *Handling) error {
	type change struct{ from, to int }
	tried := map[change]bool{}
	try := func(h *Handler, from int) error {
		c := change{from, h.Priority}
		if c.from == c.to || tried[c] {
			return nil
		}
		tried[c] = true
		if err := tryPriority(c.from, c.to); err != nil {
			return fmt.Errorf("handler %d: %w: %d, after %d: %w; give this process CAP_SYS_NICE (AmbientCapabilities= of the service), or LimitNICE=", h.Number, ErrPriority, c.to, c.from, err)
		}
		return nil
	}
	for i := range g.Handlers {
		if err := try(&g.Handlers[i], 0); err != nil {
			return err
		}
	}
	if before == nil {
		return nil
	}
	for channel := range 1 + len(g.Assigned) {
		if err := try(g.of(channel), before.of(channel).Priority); err != nil {
			return err
		}
	}
	return nil
}

// ownPriority returns the nice value of this process at the time of the first call. Later
// its main thread may be that of a worker with another value.
var ownPriority = sync.OnceValue(func() int { return niceOf(0) })

// niceOf returns the nice value of thread tid; 0 is the calling thread. The system call
// returns 20 minus that value (getpriority(2)).
func niceOf(tid int) int {
	n, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
	if err != nil {
		return 0 // the usual value
	}
	return 20 - n
}

// tryPriority tries whether a thread may change its priority from from to to; 0 is the
// priority of the process. The thread that tries ends afterwards, unless its priority can
// be reset.
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

package messaging

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/splitnic/splitnic/internal/cpus"
	"github.com/splitnic/splitnic/internal/epoll"
)

const (
	// MaxHandlers is the largest number of a completion-queue handler.
	MaxHandlers = 2 * MaxQueues
	// DefaultBudget is the budget of a handler that is not given one.
	DefaultBudget = 256
	// MaxBudget is the largest budget.
	MaxBudget = 1 << 16
	// MaxSpin is the longest time that a handler polls an empty queue.
	MaxSpin = time.Second
	// ControlHandler is the number of the control channel's handler.
	ControlHandler = 0
)

var (
	// ErrHandler is wrapped by errors about handlers, and assignments to them,
	// that cannot be.
	ErrHandler = errors.New("impossible completion-queue handler")
	// ErrProcessor is wrapped by errors about processors that this process
	// cannot use.
	ErrProcessor = errors.New("processor that cannot be used")
	// ErrPriority is wrapped by errors about priorities that this process may
	// not give its threads.
	ErrPriority = errors.New("priority that is not permitted")
)

// Handler is a completion-queue handler: what the workers of all channels have
// in common that are assigned to it. Handler 0 is the control channel's, which
// never waits behind data; data channels have the others.
//
// The completion queues of a channel are made on the completion vector that its
// handler's number selects, modulo their number, and stay there while the session lasts: verbs
// have no way to move them. All else follows an assignment, or a change of the
// handler, at once.
type Handler struct {
	Number int `json:"number"`
	// CPUs are the processors that the workers' threads are bound to; none: any.
	CPUs cpus.List `json:"processors"`
	// Priority is the nice value of the workers' threads, -20 to 19; 0 is that
	// of the process. Below that it takes CAP_SYS_NICE, or RLIMIT_NICE.
	Priority int `json:"priority"`
	// Budget is how many completions, or transfers of a sender, a worker handles
	// in a row before it looks at what else there is for it and lets the other
	// channels of the handler go on; default DefaultBudget.
	Budget int `json:"budget"`
	// Spin is how long a receiver, or the control channel's worker, polls an
	// empty queue before it arms it and sleeps.
	Spin time.Duration `json:"spin_ns"`
}

// Handling is which handlers a session has and which channels are with which.
type Handling struct {
	Handlers []Handler `json:"handlers"` // by number, the control channel's first
	Assigned []int     `json:"assigned"` // the handlers of data channels 1, 2 …
}

// HandlerChange says what to change. What is nil stays.
type HandlerChange struct {
	Assign   map[int]int    `json:"assign,omitempty"` // handlers of data channels
	Handlers []HandlerPatch `json:"handlers,omitempty"`
}

// HandlerPatch says what to change of one handler.
type HandlerPatch struct {
	Number   int            `json:"number"`
	CPUs     *cpus.List     `json:"processors,omitempty"`
	Priority *int           `json:"priority,omitempty"`
	Budget   *int           `json:"budget,omitempty"`
	Spin     *time.Duration `json:"spin_ns,omitempty"`
}

// vectors is how many completion vectors there are to choose from.
func (c *Config) vectors() int {
	if c.Device == nil {
		return 1
	}
	return max(c.Device.Limits().CompVectors, 1)
}

// Handling is what a Conn with this configuration begins with.
func (c Config) Handling() Handling {
	c = c.withDefaults()
	n := min(c.vectors(), c.Queues)
	latency := c.LatencyQueue && c.Queues > 1
	if latency {
		n = min(c.vectors(), c.Queues-1) + 1
	}
	if c.Handlers != nil {
		n = 1
	}
	for _, h := range c.Handlers {
		n = max(n, min(h.Number, MaxHandlers)) // check refuses it
	}
	g := Handling{Handlers: make([]Handler, 1+n), Assigned: make([]int, c.Queues)}
	for i := range g.Handlers {
		g.Handlers[i] = Handler{Number: i, Budget: DefaultBudget, Spin: c.Spin}
	}
	g.Handlers[ControlHandler].Spin = 0
	for _, h := range c.Handlers {
		if h.Number < 0 || h.Number > n {
			continue
		}
		if h.Budget == 0 {
			h.Budget = DefaultBudget
		}
		h.CPUs = slices.Clone(h.CPUs)
		g.Handlers[h.Number] = h
	}
	copy(g.Assigned, c.Assigned)
	for i := range g.Assigned {
		switch {
		case g.Assigned[i] != 0:
		case !latency || n == 1:
			g.Assigned[i] = g.initial(i + 1)
		case c.isLatency(i + 1): // it shares its handler with no other channel
			g.Assigned[i] = n
		default:
			g.Assigned[i] = 1 + i%(n-1)
		}
	}
	return g
}

// initial is the handler of a data channel that nobody has assigned.
func (g *Handling) initial(channel int) int { return 1 + (channel-1)%(len(g.Handlers)-1) }

// of is the handler of a channel.
func (g *Handling) of(channel int) *Handler {
	switch {
	case channel == 0:
		return &g.Handlers[ControlHandler]
	case channel <= len(g.Assigned):
		return &g.Handlers[g.Assigned[channel-1]]
	default:
		return &g.Handlers[g.initial(channel)]
	}
}

// Configure makes g what a Conn with configuration c begins with.
func (g Handling) Configure(c *Config) {
	c.Handlers, c.Assigned = g.Handlers, g.Assigned
}

// Change returns what g becomes by a change. It refuses what cannot be.
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
		if p.Priority != nil {
			h.Priority = *p.Priority
		}
		if p.Budget != nil {
			h.Budget = *p.Budget
		}
		if p.Spin != nil {
			h.Spin = *p.Spin
		}
	}
	for _, channel := range slices.Sorted(maps.Keys(ch.Assign)) {
		if channel < 1 || channel > len(g.Assigned) {
			return g, fmt.Errorf("assign data channel %d: %w: there are channels 1 to %d", channel, ErrHandler, len(g.Assigned))
		}
		g.Assigned[channel-1] = ch.Assign[channel]
	}
	if err := g.check(); err != nil {
		return g, err
	}
	return g, g.permitted(&before)
}

// unknown is the error about a handler that there is not.
func (g *Handling) unknown(number int) error {
	return fmt.Errorf("handler %d: %w: there are handlers 0, of the control channel, and 1 to %d", number, ErrHandler,
		len(g.Handlers)-1)
}

// check refuses what cannot be.
func (g *Handling) check() error {
	for i := range g.Handlers {
		if err := g.Handlers[i].check(); err != nil {
			return fmt.Errorf("handler %d: %w", i, err)
		}
	}
	for i, number := range g.Assigned {
		switch {
		case number == ControlHandler:
			return fmt.Errorf("assign data channel %d: %w: handler %d is the control channel's alone", i+1, ErrHandler, number)
		case number < 0 || number >= len(g.Handlers):
			return fmt.Errorf("assign data channel %d: %w", i+1, g.unknown(number))
		}
	}
	return nil
}

func (h *Handler) check() error {
	switch {
	case h.Budget < 1 || h.Budget > MaxBudget:
		return fmt.Errorf("%w: a budget of %d, must be 1 to %d", ErrHandler, h.Budget, MaxBudget)
	case h.Spin < 0 || h.Spin > MaxSpin:
		return fmt.Errorf("%w: polling for %v, must be 0 to %v", ErrHandler, h.Spin, MaxSpin)
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

// checkHandlers refuses what Handling would not tell.
func (c *Config) checkHandlers() error {
	seen := map[int]bool{}
	for _, h := range c.Handlers {
		if h.Number < 0 || h.Number > MaxHandlers || seen[h.Number] {
			return fmt.Errorf("handler %d: %w: must be 0 to %d, and each once", h.Number, ErrHandler, MaxHandlers)
		}
		seen[h.Number] = true
	}
	g := c.Handling()
	if err := g.check(); err != nil {
		return err
	}
	return g.permitted(nil)
}

// permitted tries whether this process may give its threads the priorities
// that the handlers have, and that channels come to have after those that they
// have had in before.
func (g *Handling) permitted(before *Handling) error {
	type step struct{ from, to int }
	tried := map[step]bool{}
	try := func(h *Handler, from int) error {
		s := step{from, h.Priority}
		if s.from == s.to || tried[s] {
			return nil
		}
		tried[s] = true
		if err := tryPriority(s.from, s.to); err != nil {
			return fmt.Errorf("handler %d: %w: %d, after %d: %w; give this process CAP_SYS_NICE (AmbientCapabilities= of the service), or LimitNICE=", h.Number, ErrPriority, s.to, s.from, err)
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

// handlers are a Conn's handlers and all their workers.
type handlers struct {
	vectors int

	mu      sync.Mutex // guards what follows, and the workers' placements
	now     Handling
	workers []*worker
	past    []tally // by handler, of workers that have gone to another
	closed  bool
}

func newHandlers(cfg *Config) *handlers {
	g := cfg.Handling()
	cpus.Allowed() // while all threads are as the process was started
	ownPriority()
	return &handlers{vectors: cfg.vectors(), now: g, past: make([]tally, MaxHandlers+1)}
}

// vector is the completion vector for the queues of a channel.
func (h *handlers) vector(channel int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now.of(channel).Number % h.vectors
}

// newWorker makes a worker for a channel. wake is raised when there is something
// for it to do that it may sleep through.
func (h *handlers) newWorker(channel int, role Role, wake *epoll.Event) *worker {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := &worker{handlers: h, channel: channel, role: role, wake: wake}
	w.configure(h.effective(channel))
	h.workers = append(h.workers, w)
	return w
}

// effective is what the workers of a channel have to follow. The caller holds the
// lock.
func (h *handlers) effective(channel int) effective {
	e := effective{Handler: *h.now.of(channel)}
	for i, number := range h.now.Assigned {
		e.shared = e.shared || (number == e.Number && i+1 != channel)
	}
	return e
}

// set puts other handlers in force.
func (h *handlers) set(g Handling) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return net.ErrClosed
	}
	channels := len(h.now.Assigned)
	g = Handling{Handlers: slices.Clone(g.Handlers), Assigned: slices.Clone(g.Assigned[:min(len(g.Assigned), channels)])}
	for i := len(g.Assigned); i < channels; i++ {
		g.Assigned = append(g.Assigned, g.initial(i+1))
	}
	if err := g.check(); err != nil {
		return err
	}
	if err := g.permitted(&h.now); err != nil {
		return err
	}
	h.now = g
	for _, w := range h.workers {
		h.reconfigure(w, h.effective(w.channel))
	}
	return nil
}

// reconfigure has a worker follow another configuration, and counts what it has
// done for the handler that it had before. The caller holds the lock.
func (h *handlers) reconfigure(w *worker, e effective) {
	p := &w.placed
	if e.equal(&p.effective) {
		return
	}
	if e.Number != p.Number {
		now := w.tally()
		h.past[p.Number] = h.past[p.Number].plus(now.minus(p.from))
		p.from = now
	}
	w.configure(e)
}

// close ends all change. The workers are gone, and soon their events are.
func (h *handlers) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
}

// Handling is which handlers there are, and which channels are with which.
func (c *Conn) Handling() Handling {
	h := c.handlers
	h.mu.Lock()
	defer h.mu.Unlock()
	return Handling{Handlers: slices.Clone(h.now.Handlers), Assigned: slices.Clone(h.now.Assigned)}
}

// SetHandling changes handlers and assignments, all at once or, with an error,
// nothing. It may be called at any time, from any goroutine; what concerns a
// channel that the session does not have is left out. All of it is in force at once, but
// for a worker that is to have a thread of its own, or none any more: it sees to that
// when it next looks, for which it is woken; one that waits for its port looks
// after that.
func (c *Conn) SetHandling(g Handling) error {
	if len(g.Handlers) < 2 {
		return fmt.Errorf("messaging: %w: there must be one for the control channel, and one for data", ErrHandler)
	}
	for i := range g.Handlers {
		if i > MaxHandlers || g.Handlers[i].Number != i {
			return fmt.Errorf("messaging: %w: %d in the place of number %d", ErrHandler, g.Handlers[i].Number, i)
		}
	}
	if err := c.handlers.set(g); err != nil {
		return fmt.Errorf("messaging: %w", err)
	}
	return nil
}

// Assign assigns data channel channel, from 1, to handler.
func (c *Conn) Assign(channel, handler int) error {
	return c.change(HandlerChange{Assign: map[int]int{channel: handler}})
}

// SetHandler changes the handler that has h's number.
func (c *Conn) SetHandler(h Handler) error {
	if h.Budget == 0 {
		h.Budget = DefaultBudget
	}
	return c.change(HandlerChange{Handlers: []HandlerPatch{{
		Number: h.Number, CPUs: &h.CPUs, Priority: &h.Priority, Budget: &h.Budget, Spin: &h.Spin,
	}}})
}

func (c *Conn) change(ch HandlerChange) error {
	g, err := c.Handling().Change(ch)
	if err != nil {
		return fmt.Errorf("messaging: %w", err)
	}
	return c.SetHandling(g)
}

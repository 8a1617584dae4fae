package messaging

import (
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/cpus"
)

// HandlerStats are a handler and what its workers have done. The counters only
// grow while the Conn lives; they are the handler's, whichever channels it had.
type HandlerStats struct {
	Handler
	Vector          int           `json:"comp_vector"` // for queues that are made for it
	Channels        []int         `json:"channels"`    // that are assigned to it
	Completions     uint64        `json:"completions"`
	Wakeups         uint64        `json:"wakeups"`          // sleeps ended by an event
	BudgetExhausted uint64        `json:"budget_exhausted"` // times that a worker was made to look elsewhere
	Workers         []WorkerStats `json:"workers"`
}

// WorkerStats are one worker, where it is now and what it has done.
type WorkerStats struct {
	Channel int  `json:"channel"`
	Role    Role `json:"role"`
	// Thread is the id of the thread that the worker is bound to, 0 if it runs
	// on any of the process's. CPUs and Priority are what the kernel says of
	// that thread, or of the process.
	Thread          int       `json:"thread"`
	CPUs            cpus.List `json:"processors"`
	Priority        int       `json:"priority"`
	Completions     uint64    `json:"completions"`
	Wakeups         uint64    `json:"wakeups"`
	BudgetExhausted uint64    `json:"budget_exhausted"`
	// Pending is true while the worker is to have a thread of its own, or to give
	// that back, and has not come to it.
	Pending bool   `json:"pending"`
	Error   string `json:"error,omitempty"` // what the kernel refused
}

// Handlers are the handlers, by number, the control channel's first. It may be
// called at any time before Close.
func (c *Conn) Handlers() []HandlerStats { return c.handlers.stats() }

func (h *handlers) stats() []HandlerStats {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]HandlerStats, len(h.now.Handlers))
	for i := range all {
		all[i] = HandlerStats{
			Handler: h.now.Handlers[i], Vector: i % h.vectors, Channels: []int{}, Workers: []WorkerStats{},
		}
		all[i].count(h.past[i])
	}
	all[ControlHandler].Channels = append(all[ControlHandler].Channels, 0)
	for i, number := range h.now.Assigned {
		all[number].Channels = append(all[number].Channels, i+1)
	}
	for _, w := range h.workers {
		now := w.tally()
		s := &all[w.placed.Number]
		s.count(now.minus(w.placed.from))
		s.Workers = append(s.Workers, w.stats(now))
	}
	return all
}

func (s *HandlerStats) count(t tally) {
	s.Completions += t.completions
	s.Wakeups += t.wakeups
	s.BudgetExhausted += t.exhausted
}

// stats describe the worker. The caller holds the handlers' lock.
func (w *worker) stats(now tally) WorkerStats {
	p := &w.placed
	s := WorkerStats{
		Channel: w.channel, Role: w.role, Thread: p.tid, CPUs: cpus.Allowed(), Priority: ownPriority(),
		Completions: now.completions, Wakeups: now.wakeups, BudgetExhausted: now.exhausted,
		Pending: w.ownThread.Load() != (p.tid != 0),
	}
	if p.tid != 0 {
		var mask unix.CPUSet
		// A thread that has ended meanwhile shows as one that may run nowhere.
		_ = unix.SchedGetaffinity(p.tid, &mask)
		s.CPUs, s.Priority = cpus.Of(&mask), niceOf(p.tid)
	}
	if p.err != nil {
		s.Error = p.err.Error()
	}
	return s
}

// ChannelVector is where a data channel's completions raise events.
type ChannelVector struct {
	Channel       int `json:"channel"`
	Handler       int `json:"handler"`
	Vector        int `json:"comp_vector"`         // of its completion queues
	HandlerVector int `json:"handler_comp_vector"` // of those that would be made now
}

// Vectors lists the data channels' completion vectors.
func (s *Stats) Vectors() []ChannelVector {
	var all []ChannelVector
	for i, c := range s.Channels {
		v := ChannelVector{Channel: i + 1, Handler: c.Handler, Vector: c.CompVector, HandlerVector: c.CompVector}
		if c.Handler < len(s.Handlers) {
			v.HandlerVector = s.Handlers[c.Handler].Vector
		}
		all = append(all, v)
	}
	return all
}

// HandlingOf is the handling that the stats are of.
func HandlingOf(s *Stats) Handling {
	var g Handling
	for _, h := range s.Handlers {
		g.Handlers = append(g.Handlers, h.Handler)
	}
	for _, c := range s.Channels {
		g.Assigned = append(g.Assigned, c.Handler)
	}
	return g
}

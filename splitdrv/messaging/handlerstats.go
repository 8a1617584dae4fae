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
		if number == Unassigned {
			continue
		}
		all[number].Channels = append(all[number].Channels, i+1)
	}
	for _, w := range h.workers {
		if w.placed.Number == Unassigned {
			continue
		}
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

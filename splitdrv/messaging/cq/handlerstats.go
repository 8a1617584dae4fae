package cq

import (
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/cpus"
)

// HandlerStats has a handler and the counters of its workers. The counters never decrease
// during the life of the Conn, also if channels are assigned to other handlers.
type HandlerStats struct {
	Handler
	Vector          int           `json:"comp_vector"` // completion vector of queues created for it
	Channels        []int         `json:"channels"`    // channels assigned to it
	Completions     uint64        `json:"completions"`
	Wakeups         uint64        `json:"wakeups"`          // sleeps ended by an event
	BudgetExhausted uint64        `json:"budget_exhausted"` // times that a worker had to yield
	Workers         []WorkerStats `json:"workers"`
}

// WorkerStats has the placement and the counters of one worker.
type WorkerStats struct {
	Channel int  `json:"channel"`
	Role    Role `json:"role"`
	// Thread is the id of the thread that the worker is locked to, or 0 if it runs on any
	// thread of the process. CPUs and Priority are those of this thread, or of the process,
	// as the kernel reports them.
	Thread          int       `json:"thread"`
	CPUs            cpus.List `json:"processors"`
	Priority        int       `json:"priority"`
	Completions     uint64    `json:"completions"`
	Wakeups         uint64    `json:"wakeups"`
	BudgetExhausted uint64    `json:"budget_exhausted"`
	// Pending is true while the worker still has to be locked to a thread, or unlocked.
	Pending bool   `json:"pending"`
	Error   string `json:"error,omitempty"` // the kernel's error when binding the thread
}

// Stats returns the handlers with their counters, by number.
func (h *Handlers) Stats() []HandlerStats {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]HandlerStats, len(h.now.Handlers))
	for i := range all {
		all[i] = HandlerStats{
			Handler: h.now.Handlers[i], Vector: i % h.Vectors, Channels: []int{}, Workers: []WorkerStats{},
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

// Stats returns the worker's stats. The caller holds the handlers' lock.
func (w *Worker) stats(now tally) WorkerStats {
	p := &w.placed
	s := WorkerStats{
		Channel: w.Channel, Role: w.role, Thread: p.tid, CPUs: cpus.Allowed(), Priority: ownPriority(),
		Completions: now.completions, Wakeups: now.wakeups, BudgetExhausted: now.exhausted,
		Pending: w.ownThread.Load() != (p.tid != 0),
	}
	if p.tid != 0 {
		var mask unix.CPUSet
		// If the thread has ended in the meantime, the list of processors is empty.
		_ = unix.SchedGetaffinity(p.tid, &mask)
		s.CPUs, s.Priority = cpus.Of(&mask), niceOf(p.tid)
	}
	if p.err != nil {
		s.Error = p.err.Error()
	}
	return s
}

package messaging

import (
	"net"
	"slices"
	"sync"

	"github.com/splitnic/splitnic/internal/cpus"
	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/internal/spin"
)

// handlers has the handlers and workers of a Conn.
type handlers struct {
	vectors int
	limit   *spin.Limit

	mu      sync.Mutex // guards the fields below, and the workers' placements
	now     Handling
	workers []*worker
	past    []tally // by handler: counts of workers that were assigned to another one since
	closed  bool
}

func newHandlers(g Handling, vectors int, limit *spin.Limit) *handlers {
	cpus.Allowed() // records the process's mask before any thread is bound
	ownPriority()  // likewise
	return &handlers{vectors: vectors, limit: limit, now: g, past: make([]tally, MaxHandlers+1)}
}

// vector returns the completion vector for the queues of a channel.
func (h *handlers) vector(channel int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	number := h.now.of(channel).Number
	if number == Unassigned {
		number = h.now.initial(channel)
	}
	return number % h.vectors
}

// newWorker creates a worker for a channel. wake is the event that wakes it.
func (h *handlers) newWorker(channel int, role Role, wake *epoll.Event) *worker {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := &worker{mu: &h.mu, channel: channel, role: role, wake: wake, polling: polling{limit: h.limit}}
	w.configure(h.now.of(channel))
	h.workers = append(h.workers, w)
	return w
}

// set replaces the handlers and assignments.
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
	if err := g.check(&h.now); err != nil {
		return err
	}
	h.now = g
	for _, w := range h.workers {
		h.reconfigure(w, h.now.of(w.channel))
	}
	return nil
}

// keepBound binds the threads of all workers again that are not bound any more.
func (h *handlers) keepBound() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.workers {
		w.keepBound()
	}
}

// reconfigure applies the configuration of a handler to a worker. If the worker was
// assigned to another handler before, its counts until now remain with that one. The caller
// holds the lock.
func (h *handlers) reconfigure(w *worker, to *Handler) {
	p := &w.placed
	if to.equal(&p.Handler) {
		return
	}
	if to.Number != p.Number {
		now := w.tally()
		if p.Number != Unassigned {
			h.past[p.Number] = h.past[p.Number].plus(now.minus(p.from))
		}
		p.from = now
	}
	w.configure(to)
}

// close makes set fail from now on. The workers have returned, and their events are about
// to be closed.
func (h *handlers) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
}

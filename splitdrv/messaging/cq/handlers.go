package cq

import (
	"net"
	"slices"
	"sync"

	"github.com/splitnic/splitnic/internal/cpus"
	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/internal/spin"
)

// Handlers has the handlers and workers of a Conn.
type Handlers struct {
	Vectors int
	limit   *spin.Limit

	mu      sync.Mutex // guards the fields below, and the workers' placements
	now     Handling
	workers []*Worker
	past    []tally // by handler: counts of workers that were assigned to another one since
	closed  bool
}

// NewHandlers returns handlers whose workers are made later. vectors is the number of completion
// vectors of the device. limit, which may be nil, limits the polling of adaptive handlers.
func NewHandlers(g Handling, vectors int, limit *spin.Limit) *Handlers {
	cpus.Allowed() // records the process's mask before any thread is bound
	ownPriority()  // likewise
	return &Handlers{Vectors: vectors, limit: limit, now: g, past: make([]tally, MaxHandlers+1)}
}

// Vector returns the completion vector for the queues of a channel.
func (h *Handlers) Vector(channel int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	number := h.now.of(channel).Number
	if number == Unassigned {
		number = h.now.Initial(channel)
	}
	return number % h.Vectors
}

// NewWorker creates a worker for a channel. wake is the event that wakes it.
func (h *Handlers) NewWorker(channel int, role Role, wake *epoll.Event) *Worker {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := &Worker{mu: &h.mu, Channel: channel, role: role, Wake: wake, Polling: polling{limit: h.limit}}
	w.configure(h.now.of(channel))
	h.workers = append(h.workers, w)
	return w
}

// Handling returns a copy of the handlers and assignments.
func (h *Handlers) Handling() Handling {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Handling{Handlers: slices.Clone(h.now.Handlers), Assigned: slices.Clone(h.now.Assigned)}
}

// Set replaces the handlers and assignments.
func (h *Handlers) Set(g Handling) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return net.ErrClosed
	}
	channels := len(h.now.Assigned)
	g = Handling{Handlers: slices.Clone(g.Handlers), Assigned: slices.Clone(g.Assigned[:min(len(g.Assigned), channels)])}
	for i := len(g.Assigned); i < channels; i++ {
		g.Assigned = append(g.Assigned, g.Initial(i+1))
	}
	if err := g.Check(&h.now); err != nil {
		return err
	}
	h.now = g
	for _, w := range h.workers {
		h.reconfigure(w, h.now.of(w.Channel))
	}
	return nil
}

// KeepBound binds the threads of all workers again that are not bound any more.
func (h *Handlers) KeepBound() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.workers {
		w.keepBound()
	}
}

// reconfigure applies the configuration of a handler to a worker. If the worker was
// assigned to another handler before, its counts until now remain with that one. The caller
// holds the lock.
func (h *Handlers) reconfigure(w *Worker, to *Handler) {
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

// Close makes set fail from now on. The workers have returned, and their events are about
// to be closed.
func (h *Handlers) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
}

package messaging

import (
	"fmt"
	"slices"
)

// Handling returns the handlers and the assignment of channels to them.
func (c *Conn) Handling() Handling {
	h := c.handlers
	h.mu.Lock()
	defer h.mu.Unlock()
	return Handling{Handlers: slices.Clone(h.now.Handlers), Assigned: slices.Clone(h.now.Assigned)}
}

// SetHandling changes handlers and assignments. If it returns an error, it has changed
// nothing. It may be called at any time, from any goroutine. Assignments of channels that
// the session does not have are ignored. The change takes effect immediately, with one
// exception: a worker that has to be locked to a thread, or unlocked, is woken to do that
// itself, and does it only afterwards if it is waiting for its port.
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

// ChannelVector has the completion vectors of a data channel.
type ChannelVector struct {
	Channel       int `json:"channel"`
	Handler       int `json:"handler"`             // Unassigned if there is none
	Vector        int `json:"comp_vector"`         // vector of its completion queues
	HandlerVector int `json:"handler_comp_vector"` // vector that they would get if created now
}

// Vectors returns the completion vectors of the data channels.
func (s *Stats) Vectors() []ChannelVector {
	var all []ChannelVector
	for i, c := range s.Channels {
		v := ChannelVector{Channel: i + 1, Handler: c.Handler, Vector: c.CompVector, HandlerVector: c.CompVector}
		if c.Handler != Unassigned && c.Handler < len(s.Handlers) {
			v.HandlerVector = s.Handlers[c.Handler].Vector
		}
		all = append(all, v)
	}
	return all
}

// HandlingOf returns the handlers and assignments that are in the stats.
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

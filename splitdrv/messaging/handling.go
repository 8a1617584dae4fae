package messaging

import (
	"fmt"
	"slices"
)

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

// ChannelVector is where a data channel's completions raise events.
type ChannelVector struct {
	Channel       int `json:"channel"`
	Handler       int `json:"handler"`             // Unassigned if there is none
	Vector        int `json:"comp_vector"`         // of its completion queues
	HandlerVector int `json:"handler_comp_vector"` // of those that would be made now
}

// Vectors lists the data channels' completion vectors.
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

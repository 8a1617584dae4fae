package messaging

import (
	"fmt"

	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
)

// Handling returns the handlers and the assignment of channels to them.
func (c *Conn) Handling() cq.Handling { return c.shared.Handlers.Handling() }

// SetHandling changes handlers and assignments. If it returns an error, it has changed
// nothing. It may be called at any time, from any goroutine. Assignments of channels that
// the session does not have are ignored. The change takes effect immediately, with one
// exception: a worker that has to be locked to a thread, or unlocked, is woken to do that
// itself, and does it only afterwards if it is waiting for its port.
func (c *Conn) SetHandling(g cq.Handling) error {
	if len(g.Handlers) < 2 {
		return fmt.Errorf("messaging: %w: there must be one for the control channel, and one for data", cq.ErrHandler)
	}
	for i := range g.Handlers {
		if i > cq.MaxHandlers || g.Handlers[i].Number != i {
			return fmt.Errorf("messaging: %w: %d in the place of number %d", cq.ErrHandler, g.Handlers[i].Number, i)
		}
	}
	if err := c.shared.Handlers.Set(g); err != nil {
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
		if c.Handler != cq.Unassigned && c.Handler < len(s.Handlers) {
			v.HandlerVector = s.Handlers[c.Handler].Vector
		}
		all = append(all, v)
	}
	return all
}

// HandlingOf returns the handlers and assignments that are in the stats.
func HandlingOf(s *Stats) cq.Handling {
	var g cq.Handling
	for _, h := range s.Handlers {
		g.Handlers = append(g.Handlers, h.Handler)
	}
	for _, c := range s.Channels {
		g.Assigned = append(g.Assigned, c.Handler)
	}
	return g
}

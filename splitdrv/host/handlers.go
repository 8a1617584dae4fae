package host

import (
	"errors"
	"net"

	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// initialHandling is which handlers sessions have before anybody changes that,
// for as many queues as the netdevice has.
func (c *Config) initialHandling() messaging.Handling {
	m := c.messaging(c.Modes[0])
	m.Queues, m.LatencyQueue = len(c.Netdev.Ports()), c.Latency != nil
	return m.Handling()
}

// ChangeHandlers changes the completion-queue handlers of the present session,
// if there is one, and of all further ones. With an error nothing has changed.
// It may be called from any goroutine.
func (h *Host) ChangeHandlers(ch messaging.HandlerChange) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.handling.Handling
	if h.session.conn != nil && h.handling.changes == 0 {
		now = h.session.conn.Handling() // which may have fewer queues than were wanted
	}
	g, err := now.Change(ch)
	if err != nil {
		return err
	}
	if h.session.conn != nil {
		// A session that has just ended does not matter.
		if err := h.session.conn.SetHandling(g); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
	}
	h.handling.Handling = g
	h.handling.changes++
	h.cfg.Log.Info("completion-queue handlers changed", "handlers", g.Handlers, "assigned", g.Assigned)
	return nil
}

// configureHandlers puts the handlers into the configuration of a session, and returns
// which change they are of.
func (h *Host) configureHandlers(c *messaging.Config) (change int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.handling.changes > 0 {
		h.handling.Configure(c)
	}
	return h.handling.changes
}

// catchUp puts in force what was changed while the session came about. The
// caller holds h.mu.
func (h *Host) catchUp(conn *messaging.Conn, change int) {
	if h.handling.changes == change {
		return
	}
	if err := conn.SetHandling(h.handling.Handling); err != nil {
		h.cfg.Log.Warn("completion-queue handlers", "reason", err)
	}
}

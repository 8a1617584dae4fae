package iounit

import (
	"errors"
	"fmt"
	"net"

	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
)

// ChangeHandlers changes the completion-queue handlers of a host's session, and of its later
// ones until the I/O unit ends. host is the name of the host, or the fingerprint of its key.
// If it returns an error, nothing has changed. Any goroutine may call it.
func (u *Unit) ChangeHandlers(host string, ch cq.HandlerChange) error {
	a, err := u.connected(host)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.services == nil {
		return fmt.Errorf("%w: %s has just left", ErrNoHost, host)
	}
	conn := a.services.conn
	g, err := conn.Handling().Change(ch)
	if err != nil {
		return err
	}
	// The session may just have ended, which is not an error.
	if err := conn.SetHandling(g); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	u.mu.Lock()
	u.handling[a.key] = g
	u.mu.Unlock()
	a.log.Info("completion-queue handlers changed", "handlers", g.Handlers, "assigned", g.Assigned)
	return nil
}

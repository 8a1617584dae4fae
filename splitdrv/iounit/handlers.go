package iounit

import (
	"errors"
	"fmt"
	"net"

	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// ChangeHandlers changes the completion-queue handlers of a host's session, and
// of its further ones until the I/O unit ends. host is its name, or the
// fingerprint of its key. With an error nothing has changed. It may be called
// from any goroutine.
func (u *Unit) ChangeHandlers(host string, ch messaging.HandlerChange) error {
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
	// A session that has just ended does not matter.
	if err := conn.SetHandling(g); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	u.mu.Lock()
	u.handling[a.key] = g
	u.mu.Unlock()
	a.log.Info("completion-queue handlers changed", "handlers", g.Handlers, "assigned", g.Assigned)
	return nil
}

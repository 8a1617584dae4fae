package iounit

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// ErrNoHost is wrapped by errors about a host that is not connected, or not
// the only one of that name.
var ErrNoHost = errors.New("no such host is connected")

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

// connected finds the session of the host that is meant.
func (u *Unit) connected(host string) (*attachment, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	var found []*attachment
	var names []string
	for _, a := range u.hosts {
		if a.hello.Name == host || (a.owner != "" && a.owner == host) {
			found = append(found, a)
		}
		names = append(names, a.hello.Name)
	}
	slices.Sort(names)
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return nil, fmt.Errorf("%w: %d have the name or the key %s; say its name where the key has several, its key (see `splitnic status`) where the name has", ErrNoHost, len(found), host)
	case len(names) == 0:
		return nil, fmt.Errorf("%w: %s; nobody is", ErrNoHost, host)
	default:
		return nil, fmt.Errorf("%w: %s; there are: %s", ErrNoHost, host, strings.Join(names, ", "))
	}
}

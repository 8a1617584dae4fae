package messaging

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/vnet"
)

// registrar registers the memory that a session's ports lend: for local reads only, so that
// no key of it is worth anything to a peer. Senders copy for as long as that takes, and
// what is not registered. But for keys it is the goroutine's that runs it, and then whose
// who closes the session.
type registrar struct {
	keys    atomic.Pointer[vnet.Keys]
	port    ZeroCopyPort                   // one of them
	regions map[*vnet.Region]fabric.Region // that are registered, and held
	before  []*vnet.Memory                 // which may still be on its way to the peer
}

const (
	// Pauses before what could not be registered is tried again.
	minLendPause = 100 * time.Millisecond
	maxLendPause = time.Minute
)

// run follows the memory until the session ends.
func (g *registrar) run(c *shared, port ZeroCopyPort) error {
	g.port, g.regions = port, make(map[*vnet.Region]fabric.Region)
	pause := minLendPause
	var last *vnet.Memory
	for {
		m, changed := port.Memory()
		if m != last {
			pause = minLendPause
			if last != nil {
				g.before = append(g.before, last)
			}
			last = m
		}
		missing := g.registerAll(c, m)
		done, err := g.deregisterOthers(c, m)
		if err != nil {
			return err
		}
		port.NotRegistered(missing)
		var again <-chan time.Time
		if missing != nil || !done {
			again = time.After(pause)
			pause = min(2*pause, maxLendPause)
		}
		select {
		case <-changed:
		case <-again:
		case <-c.done:
			return nil
		}
	}
}

// registerAll registers what is in m, has senders use it, and returns why a part of it is not
// registered.
func (g *registrar) registerAll(c *shared, m *vnet.Memory) (missing error) {
	if m == nil {
		g.keys.Store(nil)
		return nil
	}
	keys := &vnet.Keys{Memory: m, Keys: make([]vnet.Key, len(m.Regions))}
	some := false
	for i, r := range m.Regions {
		reg, err := g.register(c, r)
		if err != nil {
			missing = err
		}
		if reg != nil {
			keys.Keys[i] = vnet.Key{LKey: reg.LKey(), Known: true}
			some = true
		}
	}
	if !some {
		keys = nil
	}
	g.keys.Store(keys)
	return missing
}

// register registers a region, if it is not yet. It returns neither a registration nor an
// error for one that is gone.
func (g *registrar) register(c *shared, r *vnet.Region) (fabric.Region, error) {
	if reg := g.regions[r]; reg != nil {
		return reg, nil
	}
	n := int64(len(r.Bytes))
	if err := c.cfg.ZeroCopy.take(n, false); err != nil {
		return nil, fmt.Errorf("register memory of the front end: %w", err)
	}
	if !r.Hold() {
		c.cfg.ZeroCopy.put(n)
		return nil, nil
	}
	reg, err := c.domain.Register(r.Bytes, 0)
	if err != nil {
		c.cfg.ZeroCopy.put(n)
		return nil, errors.Join(err, r.Release())
	}
	g.regions[r] = reg
	g.port.Registered(n)
	return reg, nil
}

// deregisterOthers lets go of what is not in m, and reports whether it could: nothing of it may be on
// its way to the peer.
func (g *registrar) deregisterOthers(c *shared, m *vnet.Memory) (done bool, err error) {
	g.before = slices.DeleteFunc(g.before, func(b *vnet.Memory) bool { return b.Lend(0) == 0 })
	if len(g.before) > 0 {
		return false, nil
	}
	for r, reg := range g.regions {
		if m != nil && slices.Contains(m.Regions, r) {
			continue
		}
		if err := errors.Join(reg.Close(), g.forget(c, r)); err != nil {
			return true, err
		}
	}
	return true, nil
}

// forget forgets a region that is not registered any more.
func (g *registrar) forget(c *shared, r *vnet.Region) error {
	delete(g.regions, r)
	n := int64(len(r.Bytes))
	c.cfg.ZeroCopy.put(n)
	g.port.Registered(-n)
	return r.Release()
}

// close is for a session whose domain is closed, and with it all registrations.
func (g *registrar) close(c *shared) error {
	var errs []error
	for r := range g.regions {
		errs = append(errs, g.forget(c, r))
	}
	return errors.Join(errs...)
}

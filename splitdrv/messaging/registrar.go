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

// registrar registers the memory from which a session's ports lend frames. Registration
// permits local reads only, so that a peer cannot use its keys. Senders copy frames until
// their memory is registered. Only the goroutine of run uses the fields, except keys; after
// run has returned, close does.
type registrar struct {
	budget  *Budget
	keys    atomic.Pointer[vnet.Keys]
	port    ZeroCopyPort                   // any port of the netdevice
	regions map[*vnet.Region]fabric.Region // registered regions, which are held
	before  []*vnet.Memory                 // previous memory, whose frames may still be in flight
}

const (
	// Pauses before a failed registration is tried again.
	minLendPause = 100 * time.Millisecond
	maxLendPause = time.Minute
)

// run registers the memory, and changes the registration whenever the memory changes, until
// the session ends.
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

// registerAll registers the regions of m and makes their keys available to senders. It
// returns the reason if a region is not registered.
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

// register registers a region, unless it is registered already. For a region that is no
// longer mapped it returns nil and no error.
func (g *registrar) register(c *shared, r *vnet.Region) (fabric.Region, error) {
	if reg := g.regions[r]; reg != nil {
		return reg, nil
	}
	n := int64(len(r.Bytes))
	if err := g.budget.take(n, false); err != nil {
		return nil, fmt.Errorf("register memory of the front end: %w", err)
	}
	if !r.Hold() {
		g.budget.put(n)
		return nil, nil
	}
	reg, err := c.domain.Register(r.Bytes, 0)
	if err != nil {
		g.budget.put(n)
		return nil, errors.Join(err, r.Release())
	}
	g.regions[r] = reg
	g.port.Registered(n)
	return reg, nil
}

// deregisterOthers deregisters the regions that are not in m. It reports false, and does
// nothing, while frames in previous memory are in flight.
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

// forget releases a region that has been deregistered.
func (g *registrar) forget(c *shared, r *vnet.Region) error {
	delete(g.regions, r)
	n := int64(len(r.Bytes))
	g.budget.put(n)
	g.port.Registered(-n)
	return r.Release()
}

// close releases all regions after the session's domain, and with it their registrations,
// was closed.
func (g *registrar) close(c *shared) error {
	var errs []error
	for r := range g.regions {
		errs = append(errs, g.forget(c, r))
	}
	return errors.Join(errs...)
}

package tx

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/memory"
	"github.com/splitnic/splitnic/vnet"
)

// Registrar registers the memory from which a session's ports lend frames. Registration
// permits local reads only, so that a peer cannot use its keys. Senders copy frames until
// their memory is registered. Only the goroutine of run uses the fields, except keys; after
// run has returned, close does.
type Registrar struct {
	Budget  *memory.Budget
	Keys    atomic.Pointer[vnet.Keys]
	port    core.ZeroCopyPort              // any port of the netdevice
	regions map[*vnet.Region]fabric.Region // registered regions, which are held
	before  []*vnet.Memory                 // previous memory, whose frames may still be in flight
}

const (
	// Pauses before a failed registration is tried again.
	minLendPause = 100 * time.Millisecond
	maxLendPause = time.Minute
)

// Run registers the memory, and changes the registration whenever the memory changes, until
// the session ends.
func (g *Registrar) Run(c *core.Session, port core.ZeroCopyPort) error {
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
		done, err := g.deregisterOthers(m)
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
		case <-c.Done:
			return nil
		}
	}
}

// registerAll registers the regions of m and makes their keys available to senders. It
// returns the reason if a region is not registered.
func (g *Registrar) registerAll(c *core.Session, m *vnet.Memory) (missing error) {
	if m == nil {
		g.Keys.Store(nil)
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
	g.Keys.Store(keys)
	return missing
}

// register registers a region, unless it is registered already. For a region that is no
// longer mapped it returns nil and no error.
func (g *Registrar) register(c *core.Session, r *vnet.Region) (fabric.Region, error) {
	if reg := g.regions[r]; reg != nil {
		return reg, nil
	}
	n := int64(len(r.Bytes))
	if err := g.Budget.Take(n, false); err != nil {
		return nil, fmt.Errorf("register memory of the front end: %w", err)
	}
	if !r.Hold() {
		g.Budget.Put(n)
		return nil, nil
	}
	reg, err := c.Domain.Register(r.Bytes, 0)
	if err != nil {
		g.Budget.Put(n)
		return nil, errors.Join(err, r.Release())
	}
	g.regions[r] = reg
	g.port.Registered(n)
	return reg, nil
}

// deregisterOthers deregisters the regions that are not in m. It reports false, and does
// nothing, while frames in previous memory are in flight.
func (g *Registrar) deregisterOthers(m *vnet.Memory) (done bool, err error) {
	g.before = slices.DeleteFunc(g.before, func(b *vnet.Memory) bool { return b.Lend(0) == 0 })
	if len(g.before) > 0 {
		return false, nil
	}
	for r, reg := range g.regions {
		if m != nil && slices.Contains(m.Regions, r) {
			continue
		}
		if err := errors.Join(reg.Close(), g.forget(r)); err != nil {
			return true, err
		}
	}
	return true, nil
}

// forget releases a region that has been deregistered.
func (g *Registrar) forget(r *vnet.Region) error {
	delete(g.regions, r)
	n := int64(len(r.Bytes))
	g.Budget.Put(n)
	g.port.Registered(-n)
	return r.Release()
}

// Close releases all regions after the session's domain, and with it their registrations,
// was closed.
func (g *Registrar) Close() error {
	var errs []error
	for r := range g.regions {
		errs = append(errs, g.forget(r))
	}
	return errors.Join(errs...)
}

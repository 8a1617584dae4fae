package hostiletest

import (
	"sync"

	"github.com/splitnic/splitnic/fabric"
)

// registry is a device that knows the regions that are registered with it. From the registry an
// attacker learns the regions' own keys, which the session sends to nobody.
type registry struct {
	fabric.Device
	mu      sync.Mutex
	regions []fabric.Region
}

// behind returns the region that has an address. It is nil if there is none.
func (r *registry) behind(addr uint64) fabric.Region {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.regions {
		if addr >= g.Addr() && addr < g.Addr()+uint64(g.Len()) {
			return g
		}
	}
	return nil
}

// NewDomain implements fabric.Device.
func (r *registry) NewDomain() (fabric.Domain, error) {
	d, err := r.Device.NewDomain()
	return listedDomain{d, r}, err
}

type listedDomain struct {
	fabric.Domain
	registry *registry
}

// Register implements fabric.Domain.
func (d listedDomain) Register(mem []byte, access fabric.Access) (fabric.Region, error) {
	g, err := d.Domain.Register(mem, access)
	if err == nil {
		d.registry.mu.Lock()
		defer d.registry.mu.Unlock()
		d.registry.regions = append(d.registry.regions, g)
	}
	return g, err
}

package fabrictest

import (
	"fmt"
	"net"

	"github.com/splitnic/splitnic/fabric"
)

var _ fabric.Device = (*device)(nil)

// Name implements fabric.Device.
func (d *device) Name() string { return d.node.name }

// Limits implements fabric.Device.
func (d *device) Limits() fabric.Limits { return d.net.limits }

// NewDomain implements fabric.Device.
func (d *device) NewDomain() (fabric.Domain, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("allocating a protection domain on %s: %w", d.node.name, net.ErrClosed)
	}
	dom := newDomain(d)
	d.domains[dom] = struct{}{}
	return dom, nil
}

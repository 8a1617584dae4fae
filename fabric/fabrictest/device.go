package fabrictest

import (
	"fmt"
	"io"

	"github.com/splitnic/splitnic/fabric"
)

var _ fabric.Device = (*device)(nil)

// Name implements fabric.Device.
func (d *device) Name() string { return d.node.name }

// Driver returns the name of the driver, "" if the device has none in particular.
func (d *device) Driver() string { return d.net.adapter.Driver }

// Limits implements fabric.Device.
func (d *device) Limits() fabric.Limits { return d.net.limits }

// PortMTU returns the path MTU that the device offers, in bytes.
func (d *device) PortMTU() (int, error) {
	d.node.commands.queryPort.Add(1)
	return int(d.net.mtu.Load()), nil
}

// NewDomain implements fabric.Device.
func (d *device) NewDomain() (fabric.Domain, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.gone.Load() {
		return nil, fmt.Errorf("allocating a protection domain on %s: %w", d.node.name, d.closedErr())
	}
	dom := &domain{dev: d, objects: make(map[io.Closer]struct{})}
	d.domains[dom] = struct{}{}
	return dom, nil
}

package fabrictest

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/splitnic/splitnic/fabric"
)

var _ fabric.Device = (*device)(nil)

// device is one opening of a node.
type device struct {
	net   *Network
	node  *node
	table keyTable // guarded by net.keys

	mu      sync.Mutex
	closed  bool
	domains map[*domain]struct{}
}

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

// Close implements fabric.Device.
func (d *device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.mu.Unlock()
	var errs []error
	for _, dom := range d.openDomains() {
		errs = append(errs, dom.Close())
	}
	d.node.mu.Lock()
	delete(d.node.devs, d)
	d.node.mu.Unlock()
	return errors.Join(errs...)
}

// kill closes the queue pairs before anything else, so that peers see them
// vanish together, and ignores what an orderly Close would complain about.
func (d *device) kill() {
	for _, dom := range d.openDomains() {
		for _, q := range dom.openQPs() {
			_ = q.Close()
		}
	}
	_ = d.Close()
}

func (d *device) openDomains() []*domain {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]*domain, 0, len(d.domains))
	for dom := range d.domains {
		out = append(out, dom)
	}
	return out
}

func (d *device) drop(dom *domain) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.domains, dom)
}

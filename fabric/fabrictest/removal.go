package fabrictest

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"

	"github.com/splitnic/splitnic/fabric"
)

var (
	_ fabric.EventSource = (*device)(nil)
	_ fabric.Numbered    = (*cq)(nil)
)

// Raise raises an asynchronous event on all openings of the device.
func (n *Network) Raise(dev string, ev fabric.Event) {
	for _, d := range n.known(dev).openings() {
		d.raise(ev)
	}
}

// Remove removes the device, as if its card was unplugged. Its peers get no answer. Its users
// get an event EventDeviceFatal and no other sign; all their calls fail with EIO, even those
// that close objects. Only Close of the device itself succeeds, and closes everything.
func (n *Network) Remove(dev string) {
	n.RemoveSilently(dev)
	n.Raise(dev, fabric.Event{Type: fabric.EventDeviceFatal})
}

// RemoveSilently removes the device like Remove, without the event.
func (n *Network) RemoveSilently(dev string) {
	nd := n.known(dev)
	nd.mu.Lock()
	nd.removed = true
	nd.mu.Unlock()
	for _, d := range nd.openings() {
		d.gone.Store(true)
		for _, dom := range d.openDomains() {
			for _, q := range open[*qp](dom) {
				q.halt()
			}
		}
	}
}

// Restore undoes Remove. The device has to be opened again.
func (n *Network) Restore(dev string) {
	nd := n.known(dev)
	nd.mu.Lock()
	defer nd.mu.Unlock()
	nd.removed = false
}

func (nd *node) openings() []*device {
	nd.mu.Lock()
	defer nd.mu.Unlock()
	return slices.Collect(maps.Keys(nd.devs))
}

// WaitEvent implements fabric.EventSource.
func (d *device) WaitEvent(ctx context.Context) (fabric.Event, error) {
	select {
	case ev := <-d.events:
		return ev, nil
	default:
	}
	select {
	case ev := <-d.events:
		return ev, nil
	case <-d.done:
		return fabric.Event{}, fmt.Errorf("waiting for an event of %s: %w", d.node.name, net.ErrClosed)
	case <-ctx.Done():
		return fabric.Event{}, fmt.Errorf("waiting for an event of %s: %w", d.node.name, ctx.Err())
	}
}

// Handle implements fabric.Numbered.
func (c *cq) Handle() uint32 { return c.number }

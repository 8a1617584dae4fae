package device

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/splitnic/splitnic/fabric"
)

var _ fabric.Device = (*Device)(nil)

// Open opens the device, and begins to read its events.
func Open(cfg Config) (*Device, error) {
	cfg.Retry = cmp.Or(cfg.Retry, time.Second)
	dev, err := cfg.Open()
	if err != nil {
		return nil, err
	}
	d := &Device{cfg: cfg, name: dev.Name(), lost: make(map[*opening]struct{}), record: newRecord()}
	d.ctx, d.stop = context.WithCancel(context.Background())
	d.use(dev)
	return d, nil
}

// Driver returns the kernel driver of the device, such as mlx5_core or rdma_rxe, or "" if it is
// unknown.
func (d *Device) Driver() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.driver
}

// Silent reports whether a queue pair of the device can fail without an event, so that it has to be
// queried.
func (d *Device) Silent() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.silent
}

// Name implements fabric.Device.
func (d *Device) Name() string { return d.name }

// Limits implements fabric.Device. They are those of the last opening.
func (d *Device) Limits() fabric.Limits {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.limits
}

// Close implements fabric.Device. It closes the device also if it is gone.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	openings := slices.Collect(maps.Keys(d.lost))
	if d.now != nil {
		openings = append(openings, d.now)
	}
	d.mu.Unlock()
	d.stop()
	var errs []error
	for _, o := range openings {
		errs = append(errs, o.Close())
	}
	d.tasks.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	return errors.Join(append(d.errs, errs...)...)
}

// mtuAge is how old the answer of PortMTU can be. Each session asks once a second, and a query can
// be several commands to the firmware.
const mtuAge = 900 * time.Millisecond

// PortMTU returns the active MTU of the port, in bytes, as it was at most a second ago.
func (d *Device) PortMTU() (int, error) {
	o, err := d.current()
	if err != nil {
		return 0, err
	}
	p, ok := o.Device.(interface{ PortMTU() (int, error) })
	if !ok {
		return 0, fmt.Errorf("device %s: MTU of the port: %w", d.name, fabric.ErrUnsupported)
	}
	m := &o.mtu
	m.mu.Lock()
	defer m.mu.Unlock()
	changes, now := m.changes.Load(), time.Now()
	if m.asked.IsZero() || now.Sub(m.asked) >= mtuAge || changes != m.after {
		m.bytes, m.err = p.PortMTU()
		m.asked, m.after = now, changes
	}
	return m.bytes, m.err
}

// Status returns the status. Any goroutine may call it.
func (d *Device) Status() Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.record.status
	s.Events = maps.Clone(s.Events)
	s.DownPorts = slices.Sorted(maps.Keys(d.record.down))
	return s
}

// StatusOf returns the status of a fabric.Device, or nil if it is no Device.
func StatusOf(dev fabric.Device) *Status {
	d, ok := dev.(*Device)
	if !ok {
		return nil
	}
	s := d.Status()
	return &s
}

package device

import (
	"cmp"
	"context"
	"errors"
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

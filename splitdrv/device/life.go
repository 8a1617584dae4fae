package device

import (
	"context"
	"log/slog"
	"time"

	"github.com/splitnic/splitnic/fabric"
)

// use makes dev the opening in use. It reports false if the device was closed meanwhile.
func (d *Device) use(dev fabric.Device) bool {
	ctx, cancel := context.WithCancel(d.ctx)
	o := &opening{Device: dev, forget: cancel, domains: make(map[*domain]struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		cancel()
		return false
	}
	d.now, d.limits, d.driver = o, dev.Limits(), driverOf(dev)
	d.silent = silent(dev, d.driver)
	d.record.opened()
	if source, ok := dev.(fabric.EventSource); ok {
		d.tasks.Go(func() { d.read(ctx, o, source) })
	}
	return true
}

// driverOf returns the kernel driver of a device, "" if it is unknown.
func driverOf(dev fabric.Device) string {
	if named, ok := dev.(interface{ Driver() string }); ok {
		return named.Driver()
	}
	return ""
}

// silent reports whether the device raises no events for queue pairs, or not all of them.
// Soft-RoCE and Soft-iWARP do not.
func silent(dev fabric.Device, driver string) bool {
	switch driver {
	case "", "rdma_rxe", "siw":
		return true
	}
	_, ok := dev.(fabric.EventSource)
	return !ok
}

// read reads the events of an opening until ctx is done or the device is gone.
func (d *Device) read(ctx context.Context, o *opening, source fabric.EventSource) {
	for {
		ev, err := source.WaitEvent(ctx)
		switch {
		case err == nil:
			d.hear(o, ev)
		case ctx.Err() != nil || isClosed(err):
			return
		case saysGone(err):
			d.lose(o, &goneError{device: d.name, cause: err})
		default:
			d.lines.Log(d.cfg.Log, slog.LevelWarn, "events of the RDMA device are not heard any more", "device", d.name,
				"error", err)
			return
		}
	}
}

func (d *Device) hear(o *opening, ev fabric.Event) {
	if r, ok := o.Device.(interface{ Refresh(fabric.Event) }); ok {
		r.Refresh(ev)
	}
	if ev.Port != 0 {
		o.mtu.changes.Add(1)
	}
	failure := &EventError{Device: d.name, Event: ev}
	portDown := ev.Type == fabric.EventPortErr && o.uses(ev)
	var concerned, onPort []*domain
	d.mu.Lock()
	for dom := range o.domains {
		if dom.concerns(ev) {
			concerned = append(concerned, dom)
		}
		if portDown {
			onPort = append(onPort, dom)
		}
	}
	if ofQueuePair(ev.Type) && len(concerned) == 0 {
		d.mu.Unlock() // of a trial, which expects it, or of a session that is over
		return
	}
	d.record.event(ev)
	d.mu.Unlock()
	if serious(ev.Type) {
		d.lines.Log(d.cfg.Log, slog.LevelWarn, "RDMA device", "device", d.name, "event", ev.String())
	}
	if ev.Type == fabric.EventDeviceFatal {
		d.lose(o, failure)
	}
	for _, dom := range concerned {
		dom.fail(failure)
	}
	for _, dom := range onPort {
		dom.lacksPort(failure)
	}
}

// ofQueuePair reports whether an event says that a queue pair has failed.
func ofQueuePair(t fabric.EventType) bool {
	switch t {
	case fabric.EventQPFatal, fabric.EventQPReqErr, fabric.EventQPAccessErr:
		return true
	default:
		return false
	}
}

// serious reports whether an event is worth a line in the log.
func serious(t fabric.EventType) bool {
	switch t {
	case fabric.EventCommEst, fabric.EventSQDrained, fabric.EventQPLastWQEReached, fabric.EventSRQLimitReached:
		return false
	default:
		return true
	}
}

// lose gives up an opening because of err, ends its sessions, and looks for the device from now
// on. Only the first call for an opening has an effect.
func (d *Device) lose(o *opening, err error) {
	d.mu.Lock()
	if o.lost != nil || d.closed {
		d.mu.Unlock()
		return
	}
	o.lost = err
	d.lost[o] = struct{}{}
	d.now = nil
	d.record.lost()
	concerned := make([]*domain, 0, len(o.domains))
	for dom := range o.domains {
		concerned = append(concerned, dom)
	}
	d.discard(o)
	d.tasks.Go(d.find)
	d.mu.Unlock()
	o.forget()
	d.lines.Log(d.cfg.Log, slog.LevelError, "the RDMA device is gone, its sessions end", "device", d.name, "error", err,
		"sessions", len(concerned))
	for _, dom := range concerned {
		dom.fail(err)
	}
}

// discard closes a lost opening after its last domain. d.mu is held.
func (d *Device) discard(o *opening) {
	if d.closed || o.lost == nil || o.closing || len(o.domains) > 0 {
		return
	}
	o.closing = true
	delete(d.lost, o)
	d.tasks.Go(func() {
		if err := o.Close(); err != nil {
			d.mu.Lock()
			d.errs = append(d.errs, err)
			d.mu.Unlock()
		}
	})
}

// find opens the device when it is back.
func (d *Device) find() {
	tick := time.NewTicker(d.cfg.Retry)
	defer tick.Stop()
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-tick.C:
		}
		dev, err := d.cfg.Open()
		if err != nil {
			d.mu.Lock()
			d.record.missing(err)
			d.mu.Unlock()
			continue
		}
		if !d.use(dev) {
			if err := dev.Close(); err != nil {
				d.lines.Log(d.cfg.Log, slog.LevelWarn, "close the RDMA device", "device", d.name, "error", err)
			}
			return
		}
		d.lines.Log(d.cfg.Log, slog.LevelInfo, "the RDMA device is back", "device", d.name)
		return
	}
}

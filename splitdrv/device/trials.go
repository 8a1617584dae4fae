package device

import (
	"log/slog"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/conform"
)

// againAfter is how long the result of a trial counts that could not find out anything. A trial
// that lasts long would otherwise hold up each session.
const againAfter = time.Minute

// WindowsOf returns what is known of the memory windows of a device: what a trial has found out,
// if the device makes one, as a Device does, and otherwise what it claims.
func WindowsOf(dev fabric.Device) conform.Windows {
	if d, ok := dev.(interface{ Windows() conform.Windows }); ok {
		return d.Windows()
	}
	return claimed(dev.Limits())
}

func claimed(l fabric.Limits) conform.Windows {
	return conform.Windows{Work: l.Windows, Bounds: l.Windows && l.WindowBounds}
}

// Windows returns what is known of the memory windows of the device. The first call after each
// opening tries them. One that cannot find out anything, because the port is down for example, is
// made again for a later call.
func (d *Device) Windows() conform.Windows {
	d.trying.Lock()
	defer d.trying.Unlock()
	o, err := d.current()
	if err != nil {
		return claimed(d.Limits()) // there are no sessions until it is back
	}
	if o.windows.make(o.Device, conform.TryWindows) {
		if w := o.windows.result; w.Why != "" {
			d.lines.Once("windows", d.cfg.Log, slog.LevelWarn, "the memory windows of the RDMA device are not as it claims",
				"device", d.name, "work", w.Work, "bounds", w.Bounds, "reason", w.Why)
		}
	}
	return o.windows.result
}

// Late returns why the data of a write can be missing when a message on another queue pair says that
// it has completed; "" if it is there, or if nothing is known. It is tried like the memory windows.
func (d *Device) Late() (why string) {
	d.trying.Lock()
	defer d.trying.Unlock()
	o, err := d.current()
	if err != nil {
		return ""
	}
	o.indications.make(o.Device, conform.TryIndications)
	return o.indications.result
}

// make makes the trial, unless its result is known, and reports whether it did. Device.trying is
// held.
func (t *trial[R]) make(dev fabric.Device, try func(fabric.Device) (R, bool)) bool {
	if t.sure || !time.Now().After(t.again) {
		return false
	}
	begin := time.Now()
	t.result, t.sure = try(dev)
	if took := time.Since(begin); took > againAfter/1000 {
		t.again = time.Now().Add(againAfter)
	}
	return true
}

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
	if t := &o.windows; !t.sure && time.Now().After(t.again) {
		begin := time.Now()
		t.Windows, t.sure = conform.TryWindows(o.Device)
		if took := time.Since(begin); took > againAfter/1000 {
			t.again = time.Now().Add(againAfter)
		}
		if t.Why != "" {
			d.lines.Once("windows", d.cfg.Log, slog.LevelWarn, "the memory windows of the RDMA device are not as it claims",
				"device", d.name, "work", t.Work, "bounds", t.Bounds, "reason", t.Why)
		}
	}
	return o.windows.Windows
}

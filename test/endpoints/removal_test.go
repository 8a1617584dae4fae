package endpoints

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/device"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
)

// listened opens a device of the world's fabric so that it is listened to, and opened again when it
// is back.
func (w *world) listened(name string) *device.Device {
	w.t.Helper()
	d, err := device.Open(device.Config{
		Open: func() (fabric.Device, error) { return w.fabric.Open(name) }, Log: quiet(), Retry: time.Millisecond,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := d.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return d
}

// traffic sends frames of the host until the test ends or stop is called; they may get lost.
func (w *world) traffic(d *netdev) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	f := from(w.t, d.mac, frame(1000, 1))
	var one sync.WaitGroup
	one.Go(func() {
		for ctx.Err() == nil {
			if d.wire.Send(ctx, f) != nil {
				return
			}
		}
	})
	return func() { cancel(); one.Wait() }
}

// TestDeviceRemoved removes the RDMA device of a host, and that of its I/O unit, under traffic. The
// carrier has to go with the device, also where the other side notices nothing for a minute, and to
// come back with it.
func TestDeviceRemoved(t *testing.T) {
	w := newWorld(t)
	devs := map[string]*device.Device{"alpha": w.listened("alpha"), "unit": w.listened("unit")}
	u, _ := w.unit(func(c *iounit.Config) { c.Device = devs["unit"] })
	d, h, _ := w.host("alpha", func(c *host.Config) { c.Device = devs["alpha"] })
	d.up(t)
	for round, name := range []string{"alpha", "unit", "alpha", "unit"} {
		stop := w.traffic(d)
		lost := d.losses()
		w.fabric.Remove(name)
		d.await(t, "no carrier", func() bool { return !d.carrier && d.lost > lost })
		testenv.Eventually(t, func() bool { return len(u.Status().Hosts) == 0 }, "no session at the I/O unit")
		s := h.Status()
		if name == "unit" {
			s.DeviceState = u.Status().DeviceState
		}
		if !s.DeviceState.Gone || s.DeviceState.Losses != uint64(round/2+1) {
			t.Errorf("state of the removed device %s: %+v", name, s.DeviceState)
		}
		if _, err := devs[name].NewDomain(); !errors.Is(err, device.ErrGone) {
			t.Errorf("a domain on %s, which is gone: %v", name, err)
		}
		stop()
		w.fabric.Restore(name)
		d.up(t)
		testenv.Eventually(t, func() bool { return len(u.Status().Hosts) == 1 }, "a session at the I/O unit")
		if live := w.fabric.Live(); live.Devices != 4 { // with those that the world has opened itself
			t.Errorf("round %d: open on the fabric: %+v", round, live)
		}
	}
	testenv.Explained(t, "device")
	if n := u.Status().Ended["device"]; n != 2 {
		t.Errorf("%d sessions ended with the device of the I/O unit, not 2: %v", n, u.Status().Ended)
	}
}

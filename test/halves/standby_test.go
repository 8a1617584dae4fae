package halves

import (
	"context"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/host"
)

// TestStandbyBesideHungUnit has the preferred I/O unit hang for ever while there is
// a third one besides the one in use: that one is on standby, again when it has
// been away, and can be gone over to.
func TestStandbyBesideHungUnit(t *testing.T) {
	w := newWorld(t)
	hung, _ := w.hung("hung")
	two, three := w.gateway("two"), w.gateway("three")
	d, h, _ := w.host("alpha", func(c *host.Config) {
		c.IOUnits, c.HandshakeTimeout, c.Patience = addrs(hung, two, three), time.Hour, 0
		c.Standby, c.FailBack = true, time.Hour
	})
	with(t, h, two)
	d.up(t)
	standby := func(addr string) {
		t.Helper()
		testenv.Eventually(t, func() bool { return h.Status().Failovers.Standby == addr }, "on standby is not %q", addr)
	}
	standby(three.cable.addr)
	three.cut()
	standby("")
	three.plug()
	standby(three.cable.addr)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if f, err := h.Failover(ctx, three.cable.addr); err != nil || f.To != three.cable.addr {
		t.Fatalf("%+v, %v", f, err)
	}
	three.both(d)
}

// TestCommandBesideHungUnit commands to go over to an I/O unit while nothing is on
// standby because another one hangs.
func TestCommandBesideHungUnit(t *testing.T) {
	w := newWorld(t)
	hung, _ := w.hung("hung")
	two, three := w.gateway("two"), w.gateway("three")
	d, h, _ := w.host("alpha", func(c *host.Config) {
		c.IOUnits, c.HandshakeTimeout, c.Patience, c.Standby = addrs(two, hung, three), time.Hour, 0, true
	})
	with(t, h, two)
	d.up(t)
	testenv.Eventually(t, func() bool { return hung.unit.Status().Bootstrap.Connections > 0 },
		"nobody asks the I/O unit that hangs")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if f, err := h.Failover(ctx, three.cable.addr); err != nil || f.To != three.cable.addr {
		t.Fatalf("%+v, %v", f, err)
	}
	three.both(d)
}

package endpoints

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/iounit"
)

// TestStandbyBesideHungUnit has a preferred I/O unit that hangs for ever, the one in use, and a
// third one. The standby session has to be with the third, also after this has been away, and a
// switch to it has to work.
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
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	if f, err := h.Failover(ctx, three.cable.addr); err != nil || f.To != three.cable.addr {
		t.Fatalf("%+v, %v", f, err)
	}
	three.both(d)
}

// TestCommandBesideHungUnit commands a switch to an I/O unit while there is no standby session,
// because another I/O unit hangs.
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
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	if f, err := h.Failover(ctx, three.cable.addr); err != nil || f.To != three.cable.addr {
		t.Fatalf("%+v, %v", f, err)
	}
	three.both(d)
}

// slowPort is a port that goes up only when another one is opened, or after a second.
type slowPort struct {
	lan.Interface
	another <-chan struct{}
}

// SetUp implements lan.Interface.
func (p slowPort) SetUp(up bool) error {
	if up {
		select {
		case <-p.another:
		case <-time.After(time.Second):
		}
	}
	return p.Interface.SetUp(up)
}

// TestStandbyAwayFromCommand commands a switch to an I/O unit that was not reachable for a standby
// session. The next attempt at a standby session is due during the switch: a second session with
// this I/O unit would replace the first.
func TestStandbyAwayFromCommand(t *testing.T) {
	w := newWorld(t)
	another := make(chan struct{})
	var ports atomic.Int32
	one, two := w.gateway("one"), w.gateway("two", func(c *iounit.Config) {
		open := c.OpenLAN
		c.OpenLAN = func(mac net.HardwareAddr, queues int) (lan.Interface, error) {
			if ports.Add(1) == 2 {
				close(another)
			}
			p, err := open(mac, queues)
			return slowPort{p, another}, err
		}
	})
	two.cut()
	d, h, _ := w.host("alpha", func(c *host.Config) {
		c.IOUnits, c.Standby = addrs(one, two), true
		c.RetryMin, c.RetryMax = 200*time.Millisecond, 200*time.Millisecond
	})
	with(t, h, one)
	d.up(t)
	away := func() bool { return h.Status().Failovers.NoStandby != "" }
	testenv.Eventually(t, away, "an I/O unit on standby that is away")
	two.plug()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	if f, err := h.Failover(ctx, two.cable.addr); err != nil || f.To != two.cable.addr {
		t.Fatalf("%+v, %v", f, err)
	}
	two.both(d)
	if count := h.Status().Failovers.Count; len(count) != 1 || count[uplink.ReasonCommand] != 1 {
		t.Errorf("fail-overs: %v", count)
	}
}

// TestStandbyLeft switches to another I/O unit than that of the session on standby, which then has
// to end: the next one is with the first I/O unit.
func TestStandbyLeft(t *testing.T) {
	w := newWorld(t)
	one, two, three := w.gateway("one"), w.gateway("two"), w.gateway("three")
	d, h, _ := w.host("alpha", func(c *host.Config) { c.IOUnits, c.Standby = addrs(one, two, three), true })
	d.up(t)
	standby := func(g *gateway) {
		t.Helper()
		testenv.Eventually(t, func() bool { return h.Status().Failovers.Standby == g.cable.addr }, "not on standby")
	}
	standby(two)
	if _, err := h.Failover(within(t), three.cable.addr); err != nil {
		t.Fatal(err)
	}
	standby(one)
	testenv.Eventually(t, func() bool { return len(two.unit.Status().Hosts) == 0 }, "the session on standby goes on")
	three.both(d)
}

// TestStandbyOfHost has a standby session with an I/O unit that permits any MAC address. The
// session has to have the address of the netdevice, and to end in good order with the host.
func TestStandbyOfHost(t *testing.T) {
	w := newWorld(t)
	one := w.gateway("one", ruled(t, "default:\n  macs: [\"02:aa:*\"]\n"))
	two := w.gateway("two", ruled(t, "default: {macs: any}"))
	d, h, run := w.host("alpha", func(c *host.Config) { c.IOUnits, c.Standby = addrs(one, two), true })
	d.up(t)
	testenv.Eventually(t, func() bool { return h.Status().Failovers.Standby == two.cable.addr }, "nothing on standby")
	testenv.Eventually(t, func() bool { return len(sessionsOf(two)) == 1 }, "no session on standby")
	if mac := two.unit.Status().Hosts[0].MAC; mac != d.mac {
		t.Errorf("the session on standby has MAC address %s, the netdevice %s", mac, d.mac)
	}
	if err := run.stop(); err != nil {
		t.Error(err)
	}
	for _, g := range []*gateway{one, two} {
		testenv.Eventually(t, func() bool { return len(g.unit.Status().Ended) > 0 }, "the end of a session")
		if why := g.unit.Status().Ended; why["bye"] != 1 {
			t.Errorf("the session with %s has ended by %v", g.device, why)
		}
	}
}

// TestStandbyMTU changes the MTU of the card of the standby I/O unit, and again when that is in
// use, and expects that frames of the new size cross.
func TestStandbyMTU(t *testing.T) {
	w := newWorld(t)
	one, two := w.gateway("one"), w.gateway("two")
	d, h, _ := w.host("alpha", func(c *host.Config) { c.IOUnits, c.Standby = addrs(one, two), true })
	d.up(t)
	testenv.Eventually(t, func() bool { return h.Status().Failovers.Standby == two.cable.addr }, "nothing on standby")
	testenv.Eventually(t, func() bool { return len(sessionsOf(two)) == 1 }, "no session on standby")
	two.card.change(func(s *lan.LinkState) { s.MTU = 4000 })
	testenv.Eventually(t, func() bool { return two.unit.Status().Hosts[0].MTU == 4000 }, "the MTU of the card")
	one.cut()
	with(t, h, two)
	d.up(t)
	for _, mtu := range []int{4000, 8000} {
		two.card.change(func(s *lan.LinkState) { s.MTU = mtu })
		d.await(t, "the MTU of the card", func() bool { return d.mtu == mtu })
		lanWire := two.card.wire(d.mac)
		crosses(t, d.wire, lanWire, from(t, d.mac, frame(mtu-100, 1)))
		crosses(t, lanWire, d.wire, frame(mtu-100, 2))
	}
}

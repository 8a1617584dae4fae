package endpoints

import (
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/host/mirror"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vnet"
)

// TestNetnsHandover hands over a netdevice from one host to the next, as from one process to the
// next, again and again while TCP connections use it. The netdevice has to keep its carrier and the
// administrator's settings, and no connection may break.
func TestNetnsHandover(t *testing.T) {
	s := newShared(t, "macvtap", "default: {macs: any}")
	testenv.Address(t, s.lanNS, "lan0", lanAddr+"/24")
	ns := testenv.NetNS(t)
	testenv.DisableIPv6(t, ns)
	cfg := tap.Config{Name: "sn0", NetNS: ns, Queues: 1, Offloads: vnet.AllOffloads}
	dev, err := tap.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { dev.Close() }()
	var agreed mirror.Agreement // set by one Run at a time
	run := func(p host.History) (*host.Host, *running) {
		_, h, r := s.world.host("alpha", func(c *host.Config) {
			c.Netdev, c.KeepCarrier, c.History = host.TAP(dev), true, p
			c.OnAgreement = func(a mirror.Agreement) { agreed = a }
		})
		testenv.Eventually(t, func() bool { return h.Status().State == host.Connected }, "the host being connected")
		return h, r
	}
	h, r := run(host.History{})
	if err := dev.Up(); err != nil {
		t.Fatal(err)
	}
	mac := testMAC(7)
	testenv.With(t, ns, func(n *netlink.Handle) error {
		link := testenv.Link(t, ns, "sn0")
		if err := n.LinkSetMTU(link, 1300); err != nil {
			return err
		}
		return n.LinkSetHardwareAddr(link, mac[:])
	})
	testenv.Address(t, ns, "sn0", "10.78.0.2/24")
	asWanted := func() bool {
		n, hosts := h.Status().Netdevice, s.unit.Status().Hosts
		return n.MTU == 1300 && n.MAC == mac.String() && n.Carrier && len(hosts) == 1 && hosts[0].MAC == mac.String() &&
			hosts[0].MTU == 1300
	}
	testenv.Eventually(t, asWanted, "the I/O unit knowing what the administrator has set")

	done := make(chan error, 2)
	go func() { done <- transfer(ns, s.lanNS, lanAddr, 1, 64<<20) }()
	go func() { done <- transfer(s.lanNS, ns, "10.78.0.2", 2, 64<<20) }()
	for n, left := 0, 2; left > 0; n++ {
		// Connections would make no progress if they were interrupted more often than they
		// retransmit lost segments.
		before := testenv.Link(t, ns, "sn0").Attrs().Statistics
		testenv.Eventually(t, func() bool {
			now := testenv.Link(t, ns, "sn0").Attrs().Statistics
			return len(done) > 0 || now.RxBytes > before.RxBytes+8<<20 || now.TxBytes > before.TxBytes+8<<20
		}, "traffic after restart %d", n)
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.FcntlInt(uintptr(dev.Queues()[0].FD()), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := dev.Close(); err != nil {
			t.Fatal(err)
		}
		if dev, err = tap.Adopt(cfg, []int{fd}); err != nil {
			t.Fatal(err)
		}
		on, err := dev.Carrier()
		if err != nil || !on {
			t.Fatalf("restart %d: carrier %t, %v", n, on, err)
		}
		last := agreed
		h, r = run(host.History{Adopted: dev.Label().Adopted, Carrier: on, Agreement: &last})
		testenv.Eventually(t, asWanted, "the settings being as they were before restart %d", n)
		if got := h.Status().Netdevice.Adopted; got != n+1 {
			t.Errorf("the status says that the netdevice was taken over %d times after %d", got, n+1)
		}
		select {
		case err := <-done:
			left--
			if err != nil {
				t.Fatalf("after %d restarts: %v", n+1, err)
			}
			t.Logf("a connection unbroken by %d restarts", n+1)
		default:
		}
	}
}

// TestNetnsForsaken takes over a netdevice with carrier while there is no I/O unit, and expects
// that the carrier is lost.
func TestNetnsForsaken(t *testing.T) {
	testenv.NeedTUN(t)
	ns := testenv.NetNS(t)
	dev, err := tap.Open(tap.Config{Name: "sn0", NetNS: ns, Queues: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if err := dev.Up(); err != nil {
		t.Fatal(err)
	}
	if err := dev.SetCarrier(true); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	w.addr = "127.0.0.1:1" // nobody listens
	_, h, _ := w.host("alpha", func(c *host.Config) {
		c.Netdev, c.KeepCarrier, c.History = host.TAP(dev), true, host.History{Carrier: true}
	})
	testenv.Eventually(t, func() bool {
		on, err := dev.Carrier()
		return err == nil && !on && !h.Status().Netdevice.Carrier
	}, "the carrier going")
}

// testMAC returns the MAC address of station n.
func testMAC(n byte) protocol.MAC { return protocol.MAC{2, 0, 0, 0, 1, n} }

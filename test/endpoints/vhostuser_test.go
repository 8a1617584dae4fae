package endpoints

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/vhostuser"
	"github.com/splitnic/splitnic/vnet"
)

// TestVhostUserHost has DPDK's testpmd be the netdevice of a host. It gets what the LAN sends
// to its address, and what it sends is on the LAN; also when it has ended and another one
// comes, and when the I/O unit has ended and come again, of which it need not know. What the
// host is told to be is up and down with the front end.
func TestVhostUserHost(t *testing.T) {
	w := newWorld(t)
	_, unit := w.unit()
	a := vhostuser.Address{Path: filepath.Join(t.TempDir(), "s")}
	d, err := vhostuser.Open(vhostuser.Config{
		Address: a, Pairs: 1, Offloads: vnet.AllOffloads, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	_, h, _ := w.host("alpha", func(c *host.Config) { c.Netdev = host.VhostUser("vm0", d) })
	connected := func() bool { return h.Status().State == host.Connected && h.Status().Netdevice.Carrier }
	testenv.Eventually(t, connected, "a session")
	mac := h.Status().Netdevice.MAC // which the front end is to be given
	wanted, err := protocol.ParseMAC(mac)
	if err != nil {
		t.Fatal(err)
	}
	if s := h.Status().Netdevice; s.Name != "vm0" || s.Queues != 1 || s.MTU != 1500 {
		t.Errorf("%+v", s)
	}
	testenv.Eventually(t, func() bool { return !w.card.isUp(mac) }, "a port that is down")

	crosses := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		lan := w.card.wire(mac)
		for i, n := range []int{70, 1500, 700} {
			f := frame(n, byte(i))
			copy(f[vnet.HdrLen:], wanted[:])
			copy(f[vnet.HdrLen+6:], []byte{2, 0, 0, 0, 0, 9})
			if err := lan.Send(ctx, f); err != nil {
				t.Fatal(err)
			}
			got, err := lan.Receive(ctx, make([]byte, 1<<16))
			if err != nil {
				t.Fatal(err)
			}
			copy(f[vnet.HdrLen:], []byte{2, 0, 0, 0, 0, 9})
			copy(f[vnet.HdrLen+6:], wanted[:])
			if string(got) != string(f) {
				t.Fatalf("a frame of %d bytes comes back as %d:\n%x\n%x", len(f), len(got), got, f)
			}
		}
	}
	options := "net_virtio_user0,mac=" + mac + ",path=" + a.Path
	for range 2 {
		stop := testenv.Testpmd(t, options, "--forward-mode=macswap")
		testenv.Eventually(t, func() bool { return w.card.isUp(mac) }, "a port that is up")
		crosses()
		stop()
		testenv.Eventually(t, func() bool { return !w.card.isUp(mac) }, "a port that is down")
	}
	testenv.Testpmd(t, options, "--forward-mode=macswap")
	testenv.Eventually(t, func() bool { return w.card.isUp(mac) }, "a port that is up")
	if err := unit.stop(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, func() bool { return !connected() }, "no session")
	w.unit()
	testenv.Eventually(t, func() bool { return connected() && w.card.isUp(mac) }, "a session")
	crosses()
	if s := d.Status(); s.Connections != 3 || s.LastError != "" {
		t.Errorf("%+v", s)
	}
}

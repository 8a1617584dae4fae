package endpoints

import (
	"bytes"
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

// TestVhostUserHost uses DPDK's testpmd as the netdevice of a host. testpmd has to receive frames
// from the LAN to its address, and its frames have to arrive on the LAN, also after another testpmd
// has replaced it, and after a restart of the I/O unit, which does not involve testpmd. The host's
// port on the card has to go up and down with the front end.
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
	mac := h.Status().Netdevice.MAC // the address to pass to the front end
	wanted, err := protocol.ParseMAC(mac)
	if err != nil {
		t.Fatal(err)
	}
	if s := h.Status().Netdevice; s.Name != "vm0" || s.Queues != 1 || s.MTU != 1500 {
		t.Errorf("%+v", s)
	}
	testenv.Eventually(t, func() bool { return !w.card.isUp(mac) }, "a port that is down")

	peer := []byte{2, 0, 0, 0, 0, 9}
	// toMAC returns a frame of n bytes from the LAN, and toLAN the frame that comes back for it.
	toMAC := func(n int) (f []byte) {
		f = frame(n, byte(n))
		copy(f[vnet.HdrLen:], wanted[:])
		copy(f[vnet.HdrLen+6:], peer)
		return f
	}
	toLAN := func(n int) (f []byte) {
		f = frame(n, byte(n))
		copy(f[vnet.HdrLen:], peer)
		copy(f[vnet.HdrLen+6:], wanted[:])
		return f
	}
	crosses := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
		defer cancel()
		lan := w.card.wire(mac)
		comes := func(n int, within time.Duration) bool {
			ctx, cancel := context.WithTimeout(ctx, within)
			defer cancel()
			for {
				got, err := lan.Receive(ctx, make([]byte, 1<<16))
				if err != nil {
					return false
				}
				if bytes.Equal(got, toLAN(n)) {
					return true
				}
				if !bytes.Equal(got, toLAN(60)) {
					t.Fatalf("while a frame of %d bytes is to come back:\n%x", n, got)
				}
			}
		}
		// testpmd resets its device once more while it starts, and frames that arrive then are
		// lost.
		testenv.Eventually(t, func() bool {
			if err := lan.Send(ctx, toMAC(60)); err != nil {
				t.Fatal(err)
			}
			return comes(60, time.Second)
		}, "a first frame that comes back")
		for _, n := range []int{70, 1500, 700} {
			if err := lan.Send(ctx, toMAC(n)); err != nil {
				t.Fatal(err)
			}
			if !comes(n, time.Minute) {
				t.Fatalf("a frame of %d bytes does not come back", n)
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

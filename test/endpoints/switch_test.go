package endpoints

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/vnet"
)

// onSwitch lets an I/O unit use the ports of a switch in user space.
func onSwitch(t *testing.T, spec string) func(*iounit.Config) {
	t.Helper()
	card, err := lan.NewCard(spec, "")
	if err != nil {
		t.Fatal(err)
	}
	return func(c *iounit.Config) {
		c.OpenLAN = func(mac net.HardwareAddr, queues int) (lan.Interface, error) {
			return card.Open(lan.Config{MAC: mac, Queues: queues, Offloads: vnet.AllOffloads})
		}
		c.LinkState = func() (lan.LinkState, error) {
			info, err := card.Info()
			return info.LinkState, err
		}
	}
}

// between sends frames from one host to the other, and expects them there.
func between(t *testing.T, from, to *netdev) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	mac, err := protocol.ParseMAC(to.mac)
	if err != nil {
		t.Fatal(err)
	}
	send := func(n, tag int) []byte {
		t.Helper()
		f := fromTo(t, from.mac, mac, frame(n, byte(tag)))
		if err := from.wire.Send(ctx, f); err != nil {
			t.Fatal(err)
		}
		return f
	}
	// DPDK sets up its rings again when it configures a port that was up already, and the frames in
	// them are lost: the first frame is sent until it arrives.
	buf := make([]byte, 1<<17)
	var first []byte
	for arrived := false; !arrived; {
		first = send(90, 0xee)
		soon, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		got, err := to.wire.Receive(soon, buf)
		for err == nil && !bytes.Equal(got, first) { // announcements of the other host
			got, err = to.wire.Receive(soon, buf)
		}
		arrived = err == nil
		cancel()
		if ctx.Err() != nil {
			t.Fatal("no frame arrives: ", err)
		}
	}
	for i, n := range []int{70, 1500, 700} {
		f := send(n, i)
		got, err := to.wire.Receive(ctx, buf)
		for err == nil && (got[vnet.HdrLen]&1 != 0 || bytes.Equal(got, first)) {
			got, err = to.wire.Receive(ctx, buf)
		}
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, f) {
			t.Fatalf("a frame of %d bytes arrives as %d:\n%x\n%x", len(f), len(got), got, f)
		}
	}
}

// fromTo sets the addresses of frame f, and returns it.
func fromTo(t *testing.T, mac string, to protocol.MAC, f []byte) []byte {
	copy(f[vnet.HdrLen:], to[:])
	return from(t, mac, f)
}

// TestUserSwitch uses DPDK's testpmd as the switch between two hosts, each of which has a
// vhost-user port there. Frames have to cross. The link has to be up while the switch runs, and
// frames have to cross again after another switch has started. Each side listens in one of the
// subtests.
func TestUserSwitch(t *testing.T) {
	t.Run("testpmd connects", func(t *testing.T) { testUserSwitch(t, "", "") })
	t.Run("testpmd listens", func(t *testing.T) { testUserSwitch(t, ",client", ",server=1") })
}

func testUserSwitch(t *testing.T, unitSide, switchSide string) {
	dir := t.TempDir()
	w := newWorld(t)
	w.unit(onSwitch(t, "vhost-user:"+dir+unitSide+",mtu=1600"))
	a, ha, _ := w.host("alpha")
	b, hb, _ := w.host("beta")
	connected := func() bool {
		return ha.Status().State == host.Connected && hb.Status().State == host.Connected
	}
	testenv.Eventually(t, connected, "sessions")
	for _, d := range []*netdev{a, b} {
		_ = d.set(func() {
			if d.raised != 0 {
				t.Error("the carrier was there before the switch")
			}
		})
	}
	var devices []string
	for i, h := range []*host.Host{ha, hb} {
		mac := h.Status().Netdevice.MAC
		devices = append(devices, fmt.Sprintf("net_virtio_user%d,path=%s,mac=%s%s", i,
			filepath.Join(dir, strings.ReplaceAll(mac, ":", "-")), mac, switchSide))
	}
	for range 2 {
		stop := testenv.TestpmdOf(t, devices, "--forward-mode=io", "--port-topology=paired")
		a.up(t)
		b.up(t)
		if a.mtu != 1600 {
			t.Errorf("the MTU is %d", a.mtu)
		}
		between(t, a, b)
		between(t, b, a)
		stop()
		a.down(t)
		b.down(t)
	}
}

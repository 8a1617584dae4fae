package tap_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vnet"
)

// far has the addresses of neighbours on the LAN. fixed has the addresses of neighbours with a
// permanent entry, whose link-layer address an administrator has set.
var (
	far   = []netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("fd09::1")}
	fixed = []netip.Addr{netip.MustParseAddr("10.9.0.9"), netip.MustParseAddr("fd09::9")}
)

// asking is a device whose network stack never repeats a solicitation.
type asking struct {
	t   *testing.T
	dev *tap.Device
	ns  string
	top string // name of the device with the addresses: sn0, or a device stacked on sn0
}

// lose turns the carrier off, and then sends datagrams to far. The network stack solicits these
// neighbours in vain.
func (a *asking) lose() {
	a.t.Helper()
	if err := a.dev.SetCarrier(false); err != nil {
		a.t.Fatal(err)
	}
	testenv.Eventually(a.t, func() bool { return !testenv.Running(a.t, a.ns, a.top) }, "%s keeps its carrier", a.top)
	a.talk()
	for _, to := range far {
		testenv.Eventually(a.t, func() bool { return a.state(to) == netlink.NUD_INCOMPLETE }, "%v is not asked for", to)
	}
	a.heard(map[netip.Addr]int{})
}

// talk sends a datagram to each address of far.
func (a *asking) talk() {
	a.t.Helper()
	for _, to := range far {
		err := netns.Do(a.ns, func() error {
			c, err := net.Dial("udp", netip.AddrPortFrom(to, 9).String())
			if err != nil {
				return err
			}
			_, err = c.Write([]byte("hello"))
			return errors.Join(err, c.Close())
		})
		if err != nil {
			a.t.Fatal(err)
		}
	}
}

// state returns the state of a neighbour in the network stack.
func (a *asking) state(of netip.Addr) int {
	a.t.Helper()
	return testenv.NeighbourState(a.t, a.ns, a.top, of)
}

// heard reads all frames of the device, and counts in who the solicitations by address.
func (a *asking) heard(who map[netip.Addr]int) {
	a.t.Helper()
	slot := make([]byte, vnet.MaxFrame+1)
	for {
		f, err := a.dev.Queues()[0].ReadFrame(slot)
		if errors.Is(err, unix.EAGAIN) {
			return
		}
		if err != nil {
			a.t.Fatal(err)
		}
		f = f[vnet.HdrLen+12:]
		if bytes.Equal(f[:2], []byte{0x81, 0}) {
			f = f[4:] // skip the VLAN tag
		}
		const request, solicitation = 1, 135
		switch {
		case bytes.Equal(f[:2], []byte{8, 6}) && f[9] == request:
			who[netip.AddrFrom4([4]byte(f[26:]))]++
		case bytes.Equal(f[:2], []byte{0x86, 0xdd}) && f[8] == unix.IPPROTO_ICMPV6 && f[42] == solicitation:
			who[netip.AddrFrom16([16]byte(f[50:]))]++
		}
	}
}

// solicited turns the carrier on, and expects 2 to 5 solicitations for each address of far, which
// does not answer. One solicitation may be lost.
func (a *asking) solicited() {
	a.t.Helper()
	if err := a.dev.SetCarrier(true); err != nil {
		a.t.Fatal(err)
	}
	if err := a.dev.Solicit(a.t.Context()); err != nil {
		a.t.Fatal(err)
	}
	who := map[netip.Addr]int{}
	testenv.Eventually(a.t, func() bool {
		a.heard(who)
		return who[far[0]] != 0 && who[far[1]] != 0
	}, "%v are not asked for", far)
	for _, to := range far {
		if who[to] < 2 || who[to] > 5 {
			a.t.Errorf("asked %d times for %v", who[to], to)
		}
		if s := a.state(to); s != netlink.NUD_INCOMPLETE {
			a.t.Errorf("the state of %v is %#x", to, s)
		}
	}
	for _, to := range fixed {
		if s := a.state(to); s != netlink.NUD_PERMANENT {
			a.t.Errorf("the state of %v, which is permanent, is %#x", to, s)
		}
	}
}

// device0 stacks no other device on the device.
func device0(string) (top string) { return "sn0" }

// newAsking makes a device. stack may stack another device on this one, and returns the name of the
// topmost device, which gets the addresses.
func newAsking(t *testing.T, stack func(ns string) (top string)) *asking {
	t.Helper()
	testenv.NeedTUN(t)
	testenv.NoLeaks(t)
	ns := testenv.NetNS(t)
	dev, err := tap.Open(tap.Config{Name: "sn0", NetNS: ns, MAC: testMAC})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(dev.Up(), dev.SetCarrier(true)); err != nil {
		t.Fatal(err)
	}
	a := &asking{t, dev, ns, stack(ns)}
	testenv.Up(t, ns, a.top)
	a.address()
	return a
}

// address gives the topmost device its addresses and neighbours.
func (a *asking) address() {
	a.t.Helper()
	testenv.AskOnce(a.t, a.ns, a.top)
	for i, addr := range []string{"10.9.0.2/24", "fd09::2/64"} {
		testenv.Address(a.t, a.ns, a.top, addr)
		testenv.Neighbour(a.t, a.ns, a.top, fixed[i], net.HardwareAddr{2, 0, 0, 0, 0, 9})
	}
}

// TestNetnsSolicit turns the carrier on while the network stack waits for neighbours. It expects
// the neighbours to be solicited at once, on the device itself and on a device stacked on it.
func TestNetnsSolicit(t *testing.T) {
	testenv.NeedTools(t, "ip")
	for name, stack := range map[string]func(ns string) (top string){
		"device": device0,
		"macvlan": func(ns string) string {
			testenv.Run(t, ns, "ip", "link", "add", "link", "sn0", "name", "top", "type", "macvlan", "mode", "bridge")
			return "top"
		},
		"macvlan of a bridge": func(ns string) string {
			testenv.Bridge(t, ns, "br0", "sn0")
			testenv.Run(t, ns, "ip", "link", "add", "link", "br0", "name", "top", "type", "macvlan", "mode", "bridge")
			return "top"
		},
	} {
		t.Run(name, func(t *testing.T) { testSolicit(t, stack) })
	}
}

// TestRDMASolicitVLAN is TestNetnsSolicit with VLAN devices. It belongs to the softroce layer
// because the guest kernels have VLAN devices.
func TestRDMASolicitVLAN(t *testing.T) {
	testenv.NeedRDMA(t, 1)
	testenv.NeedTools(t, "ip")
	testSolicit(t, func(ns string) string {
		testenv.Run(t, ns, "ip", "link", "add", "link", "sn0", "name", "sn0v5", "type", "vlan", "id", "5")
		return "sn0v5"
	})
}

func testSolicit(t *testing.T, stack func(ns string) (top string)) {
	a := newAsking(t, stack)
	for range 2 {
		a.lose()
		a.solicited()
	}
}

// TestNetnsSolicitElsewhere moves the device to another namespace, and then expects the same as
// TestNetnsSolicit.
func TestNetnsSolicitElsewhere(t *testing.T) {
	testenv.NeedTools(t, "ip")
	a := newAsking(t, device0)
	there := testenv.NetNS(t)
	testenv.Run(t, a.ns, "ip", "link", "set", "sn0", "netns", there)
	a.ns = there
	if err := a.dev.Up(); err != nil {
		t.Fatal(err)
	}
	a.address()
	a.lose()
	a.solicited()
}

// TestNetnsSolicitInVain solicits without neighbours, without carrier, while the device is down,
// and after the device was deleted. Only the last has to be an error.
func TestNetnsSolicitInVain(t *testing.T) {
	a := newAsking(t, device0)
	if err := a.dev.Solicit(t.Context()); err != nil {
		t.Errorf("without neighbours: %v", err)
	}
	a.lose()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- a.dev.Solicit(ctx) }()
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("without a carrier: %v", err)
		}
	case <-time.After(testenv.Patience):
		t.Fatal("it waits for ever")
	}
	who := map[netip.Addr]int{}
	if a.heard(who); len(who) != 0 {
		t.Errorf("asked for %v without a carrier", who)
	}
	if err := a.dev.SetUp(false); err != nil {
		t.Fatal(err)
	}
	if err := a.dev.Solicit(t.Context()); err != nil {
		t.Errorf("of a device that is down: %v", err)
	}
	testenv.With(t, a.ns, func(h *netlink.Handle) error { return h.LinkDel(testenv.Link(t, a.ns, "sn0")) })
	if err := a.dev.Solicit(t.Context()); !errors.Is(err, tap.ErrGone) {
		t.Errorf("of a device that was deleted: %v", err)
	}
}

package endpoints

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vnet"
)

// follower is a host with a real netdevice, whose I/O unit shares a real network card.
type follower struct {
	*shared
	ns   string // of sn0
	host *host.Host
	run  *running
}

func newFollower(t *testing.T, rules string) *follower {
	t.Helper()
	testenv.NeedTools(t, "ip", "bridge")
	s := newShared(t, "macvtap", rules)
	f := &follower{shared: s, ns: testenv.NetNS(t)}
	dev, err := tap.Open(tap.Config{Name: "sn0", NetNS: f.ns, Offloads: vnet.AllOffloads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := dev.Up(); err != nil {
		t.Fatal(err)
	}
	_, f.host, f.run = s.world.host("alpha", func(c *host.Config) { c.Netdev = host.TAP(dev) })
	f.eventually("told all", func() bool {
		st := f.host.Status()
		return st.Netdevice.Carrier && st.Filter != nil && st.VLANs != nil
	})
	return f
}

func (f *follower) ip(args string) {
	f.t.Helper()
	testenv.Run(f.t, f.ns, "ip", strings.Fields(args)...)
}

func (f *follower) eventually(what string, cond func() bool) {
	f.t.Helper()
	testenv.Eventually(f.t, cond, "%s: host %+v, port %+v", what, later(func() any { return f.host.Status() }),
		later(func() any { return f.port() }))
}

// sn0 returns the attributes of the netdevice.
func (f *follower) sn0() *netlink.LinkAttrs { return testenv.Link(f.t, f.ns, "sn0").Attrs() }

// port returns the attributes of the host's interface on the card, nil if there is none.
func (f *follower) port() *netlink.LinkAttrs {
	f.t.Helper()
	hosts := f.unit.Status().Hosts
	if len(hosts) == 0 {
		return nil
	}
	l := testenv.Link(f.t, f.unitNS, hosts[0].Interface)
	if l == nil {
		return nil
	}
	return l.Attrs()
}

// joined reports whether the host's interface receives the group.
func (f *follower) joined(group string) bool {
	f.t.Helper()
	out := testenv.Run(f.t, f.unitNS, "ip", "maddr", "show", "dev", f.port().Name)
	return strings.Contains(out, group)
}

func (f *follower) refusal() string {
	r := f.host.Status().LastRefusal
	if r == nil {
		return ""
	}
	return r.What + " " + r.Wanted
}

// TestNetnsFollow changes the netdevice as an administrator does, and expects that the host's
// interface on the card follows.
func TestNetnsFollow(t *testing.T) {
	f := newFollower(t, "default: {promiscuous: yes, macs: any}")
	f.ip("link set sn0 address 02:00:00:00:00:99")
	f.eventually("the MAC address of the macvtap",
		func() bool { return f.port().HardwareAddr.String() == "02:00:00:00:00:99" })
	f.ip("link set sn0 down")
	f.eventually("the macvtap down", func() bool { return f.port().Flags&net.FlagUp == 0 })
	f.ip("link set sn0 up")
	f.eventually("the macvtap up", func() bool {
		return f.port().Flags&net.FlagUp != 0 &&
			f.host.Status().Netdevice.Carrier
	})
	f.ip("maddr add 01:00:5e:01:02:03 dev sn0")
	f.eventually("the group on the macvtap", func() bool { return f.joined("01:00:5e:01:02:03") })
	f.ip("maddr del 01:00:5e:01:02:03 dev sn0")
	f.eventually("no group on the macvtap", func() bool { return !f.joined("01:00:5e:01:02:03") })
	allMulti := func() bool { return f.host.Status().Filter.AllMulti }
	f.ip("link set sn0 allmulticast on")
	f.eventually("all multicast", allMulti)
	f.ip("link set sn0 allmulticast off")
	f.eventually("not all multicast", func() bool { return !allMulti() })
	promisc := func() bool { return f.host.Status().Filter.Promisc }
	// The card is promiscuous already: a veth has no address filter.
	before := testenv.Link(t, f.unitNS, "eth1").Attrs().Promisc
	card := func() int { return testenv.Link(t, f.unitNS, "eth1").Attrs().Promisc - before }
	f.ip("link set sn0 promisc on")
	f.eventually("promiscuous", func() bool { return promisc() && card() == 1 })
	f.ip("link set sn0 promisc off")
	f.eventually("not promiscuous", func() bool { return !promisc() && card() == 0 })
	testenv.Run(t, f.ns, "bridge", "fdb", "add", "02:00:00:00:00:98", "dev", "sn0", "self")
	f.eventually("a further address", func() bool { return len(f.host.Status().Filter.Unicast) == 1 && !promisc() })
	testenv.Run(t, f.ns, "bridge", "fdb", "del", "02:00:00:00:00:98", "dev", "sn0", "self")
	f.eventually("no further address", func() bool { return len(f.host.Status().Filter.Unicast) == 0 })
	testenv.ListenRaw(t, f.ns, "sn0")
	f.eventually("promiscuous for a capture", func() bool { return promisc() && f.host.Status().VLANs.String() == "all" })
	f.ip("link set sn0 mtu 1300")
	f.eventually("the MTU", func() bool { h := f.unit.Status().Hosts; return len(h) == 1 && h[0].MTU == 1300 })
	if r := f.refusal(); r != "" {
		t.Errorf("refused: %s", r)
	}

	// Another session has to begin with all these settings.
	name := f.port().Name
	testenv.With(t, f.unitNS, func(h *netlink.Handle) error { return h.LinkDel(testenv.Link(t, f.unitNS, name)) })
	f.eventually("a session with the same settings", func() bool {
		st, u := f.host.Status(), f.unit.Status()
		return st.Sessions == 2 && st.Filter != nil && st.Filter.Promisc && len(u.Hosts) == 1 && u.Hosts[0].MTU == 1300 &&
			f.port() != nil && f.port().HardwareAddr.String() == "02:00:00:00:00:99"
	})
	if a := f.sn0(); a.MTU != 1300 || a.HardwareAddr.String() != "02:00:00:00:00:99" {
		t.Errorf("sn0 has MTU %d, %v", a.MTU, a.HardwareAddr)
	}

	// Nothing stays on the card when the host leaves.
	if err := f.run.stop(); err != nil {
		t.Error(err)
	}
	f.eventually("the card as it was", func() bool {
		return len(testenv.Links(t, f.unitNS)) == 2 && testenv.Link(t, f.unitNS, "eth1").Attrs().Promisc == 0
	})
}

// TestNetnsFollowDenied makes changes that the policy does not permit, and expects that they are
// undone.
func TestNetnsFollowDenied(t *testing.T) {
	f := newFollower(t, `default: {macs: ["02:aa:*"], vlans: none}`)
	before := f.sn0()
	f.ip("link set sn0 address 02:00:00:00:00:99")
	f.eventually("the old MAC address", func() bool {
		return f.refusal() == "MAC 02:00:00:00:00:99" && slices.Equal(f.sn0().HardwareAddr, before.HardwareAddr)
	})
	f.ip("link set sn0 address 02:aa:00:00:00:99")
	f.eventually("one that is allowed", func() bool { return f.port().HardwareAddr.String() == "02:aa:00:00:00:99" })
	f.ip("link set sn0 mtu 4000")
	f.eventually("the old MTU", func() bool { return f.refusal() == "MTU 4000" && f.sn0().MTU == before.MTU })
	f.ip("link set sn0 promisc on")
	f.eventually("promisc off", func() bool {
		return f.refusal() == "promiscuous mode on" && f.sn0().RawFlags&unix.IFF_PROMISC == 0 && f.sn0().Promisc == 0
	})
	// Permitted changes still work.
	f.ip("maddr add 01:00:5e:01:02:03 dev sn0")
	f.eventually("the group on the macvtap", func() bool { return f.joined("01:00:5e:01:02:03") })
}

// TestNetnsFollowCard changes the card's MTU while the administrator has set one: the netdevice has
// to have the smaller of both.
func TestNetnsFollowCard(t *testing.T) {
	f := newFollower(t, "")
	card := func(mtu, want int) {
		t.Helper()
		for ns, name := range map[string]string{f.unitNS: "eth1", f.lanNS: "lan0"} {
			testenv.With(t, ns, func(h *netlink.Handle) error { return h.LinkSetMTU(testenv.Link(t, ns, name), mtu) })
		}
		f.eventually("the MTU", func() bool { return f.sn0().MTU == want && f.host.Status().Netdevice.MTU == want })
	}
	f.ip("link set sn0 mtu 1400")
	f.eventually("1400", func() bool { return f.host.Status().Netdevice.MTU == 1400 })
	card(1300, 1300)
	card(1500, 1400)
	card(9000, 1400)
	f.ip("link set sn0 mtu 9000")
	f.eventually("9000", func() bool { return f.host.Status().Netdevice.MTU == 9000 })
	card(2000, 2000)
	f.ip("link set sn0 mtu 1500")
	f.eventually("1500", func() bool { return f.host.Status().Netdevice.MTU == 1500 })
	card(9000, 1500)
	if r := f.refusal(); r != "" {
		t.Errorf("refused: %s", r)
	}
}

// TestNetnsReset resets the host's settings, and reads the I/O unit's counters.
func TestNetnsReset(t *testing.T) {
	f := newFollower(t, "default: {promiscuous: yes, macs: any}")
	before := f.sn0()
	f.ip("link set sn0 address 02:00:00:00:00:99 mtu 1300 promisc on allmulticast on")
	f.eventually("all of it", func() bool {
		st := f.host.Status()
		return st.Netdevice.MAC == "02:00:00:00:00:99" && st.Netdevice.MTU == 1300 && st.Filter.Promisc && st.Filter.AllMulti
	})
	if err := f.host.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.eventually("nothing of it", func() bool {
		st, a := f.host.Status(), f.sn0()
		return st.Filter != nil && !st.Filter.Promisc && !st.Filter.AllMulti && a.MTU == 1500 &&
			slices.Equal(a.HardwareAddr, before.HardwareAddr) &&
			slices.Equal(f.port().HardwareAddr, before.HardwareAddr) && a.RawFlags&(unix.IFF_PROMISC|unix.IFF_ALLMULTI) == 0
	})

	testenv.Address(t, f.lanNS, "lan0", lanAddr+"/24")
	testenv.Address(t, f.ns, "sn0", "10.78.0.2/24")
	testenv.Ping(t, f.ns, lanAddr)
	read := func(clear bool) protocol.Statistics {
		t.Helper()
		s, err := f.host.Statistics(t.Context(), clear)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	// A frame is counted after it was posted, and so perhaps after its answer has arrived.
	all := func(s protocol.Statistics) bool { return s.RxFrames >= 4 && s.TxFrames >= 4 && s.RxBytes >= 4*60 }
	f.eventually("all echoes counted", func() bool { return all(read(false)) })
	if s := read(true); !all(s) {
		t.Errorf("read and cleared: %+v", s)
	}
	if s := read(false); s.TxFrames > 3 {
		t.Errorf("after they were cleared: %+v", s)
	}
}

// TestNetnsDeletedWhileAway deletes the netdevice while there is no I/O unit. The host has to end
// without a session.
func TestNetnsDeletedWhileAway(t *testing.T) {
	testenv.NeedTUN(t)
	w, ns := newWorld(t), testenv.NetNS(t)
	dead, err := net.Listen("tcp", testenv.Loopback()+":0")
	if err != nil {
		t.Fatal(err)
	}
	w.addr = dead.Addr().String()
	dead.Close()
	dev, err := tap.Open(tap.Config{Name: "sn0", NetNS: ns})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	_, h, run := w.host("alpha", func(c *host.Config) { c.Netdev = host.TAP(dev) })
	testenv.Eventually(t, func() bool { return h.Status().Attempts > 0 }, "the host does not try")
	testenv.With(t, ns, func(l *netlink.Handle) error { return l.LinkDel(testenv.Link(t, ns, "sn0")) })
	select {
	case err := <-run.done:
		run.once.Do(func() {})
		if !errors.Is(err, host.ErrNetdeviceGone) {
			t.Errorf("%v", err)
		}
	case <-time.After(testenv.Patience):
		t.Fatal("the host goes on")
	}
}

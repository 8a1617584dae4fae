package endpoints

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/vnet"
)

// shared is a real network card that an I/O unit shares, and a station on its LAN.
type shared struct {
	t      *testing.T
	world  *world
	unit   *iounit.Unit
	unitNS string
	lanNS  string
	nic    string
}

// newShared makes the card and starts the I/O unit with a policy, "" for none.
func newShared(t *testing.T, kind, text string, change ...func(*iounit.Config)) *shared {
	t.Helper()
	testenv.NeedRoot(t)
	testenv.NeedTUN(t)
	s := &shared{t: t, world: newWorld(t), unitNS: testenv.NetNS(t), lanNS: testenv.NetNS(t), nic: "eth1"}
	s.world.patience = testenv.Patience
	testenv.DisableIPv6(t, s.unitNS)
	testenv.DisableIPv6(t, s.lanNS)
	testenv.Veth(t, s.unitNS, "eth1", s.lanNS, "lan0")
	if kind == "tap" {
		s.nic = "br0"
		// A bridge takes the lowest address of its ports. With this high address of the card the
		// bridge takes that of a host's port, and another one for each port with a lower address.
		testenv.Run(t, s.unitNS, "ip", "link", "set", "eth1", "address", "fe:ff:ff:00:0e:01")
		testenv.Bridge(t, s.unitNS, s.nic, "eth1")
	}
	s.unit, _ = s.world.unit(append([]func(*iounit.Config){func(c *iounit.Config) {
		c.Policy = rules(t, text)
		c.OpenLAN = func(mac net.HardwareAddr, queues int) (lan.Interface, error) {
			return lan.Open(kind+":"+s.nic, lan.Config{NetNS: s.unitNS, MAC: mac, Queues: queues, Offloads: vnet.AllOffloads})
		}
		c.LinkState = func() (lan.LinkState, error) {
			info, err := lan.LinkInfo(s.nic, s.unitNS)
			return info.LinkState, err
		}
	}}, change...)...)
	return s
}

func (s *shared) cardMAC() protocol.MAC {
	return protocol.MAC(testenv.Link(s.t, s.unitNS, s.nic).Attrs().HardwareAddr)
}

// send sends a frame from the LAN.
func (s *shared) send(f []byte) { testenv.SendRaw(s.t, s.lanNS, "lan0", f) }

// marked returns a frame with an experimental EtherType and a mark, in a VLAN if vlan is not 0.
func marked(dst [6]byte, src protocol.MAC, mark byte, vlan uint16) []byte {
	f := make([]byte, vnet.HdrLen, vnet.HdrLen+64)
	f = append(append(f, dst[:]...), src[:]...)
	if vlan != 0 {
		f = append(f, 0x81, 0, byte(vlan>>8), byte(vlan))
	}
	f = append(f, 0x88, 0xb5, mark)
	return append(f, make([]byte, 40)...)
}

func markOf(f []byte) (byte, bool) {
	rest := f[min(len(f), vnet.HdrLen+12):]
	if len(rest) > 4 && rest[0] == 0x81 {
		rest = rest[4:]
	}
	if len(rest) < 3 || !bytes.Equal(rest[:2], []byte{0x88, 0xb5}) {
		return 0, false
	}
	return rest[2], true
}

var (
	toAll    = protocol.Group{255, 255, 255, 255, 255, 255}
	station  = protocol.MAC{2, 0x11, 0, 0, 0, 1} // on the LAN
	somebody = protocol.MAC{2, 0x22, 0, 0, 0, 1} // elsewhere on the LAN
	machine  = protocol.MAC{2, 0x33, 0, 0, 0, 1} // behind a host
	group1   = protocol.Group{0x33, 0x33, 0, 0, 0x12, 0x34}
	group2   = protocol.Group{1, 0, 0x5e, 1, 2, 3}
)

// listener receives the frames on the LAN that hosts send.
type listener struct{ *testenv.Listener }

// marks receives frames until the one with mark last, and returns all marks.
func (l listener) marks(last byte) string {
	var got []byte
	l.Next(func(f []byte) bool {
		m, ok := markOf(f)
		if ok && m >= '0' && m <= 'z' {
			got = append(got, m)
		}
		return ok && m == last
	})
	return string(got)
}

// kinds are all kinds of LAN interface.
var kinds = []string{"macvtap", "packet", "tap"}

// TestNetnsServiceMAC changes the MAC address of a connected host.
func TestNetnsServiceMAC(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := newShared(t, kind, "default: {macs: any}\n")
			before := testenv.Links(t, s.unitNS)
			a, b := s.peer("a"), s.peer("b")
			ownA, ownB := a.welcome.MAC, b.welcome.MAC
			a.ask("another host's", protocol.CfgMAC, ownB[:], protocol.CfgDenied)
			card := s.cardMAC()
			a.ask("the card's", protocol.CfgMAC, card[:], protocol.CfgDenied)
			if got := a.ask("a new one", protocol.CfgMAC, somebody[:], protocol.CfgOK); !bytes.Equal(got, somebody[:]) {
				t.Errorf("in force is %x", got)
			}
			a.send(marked(toAll, somebody, '0', 0)) // a bridge learns from this frame
			b.marks('0')
			s.send(marked(somebody, station, '1', 0))
			s.send(marked(toAll, station, '9', 0))
			if got := a.marks('9'); got != "19" {
				t.Errorf("with a new address: %q", got)
			}
			if kind == "macvtap" {
				if got := protocol.MAC(testenv.Link(t, s.unitNS,
					s.unit.Status().Hosts[0].Interface).Attrs().HardwareAddr); got != somebody {
					t.Errorf("the macvtap has %v", got)
				}
			}
			// The former address is free, and so is the name of the interface.
			c := s.peer("c", func(h *session.Hello) { h.MAC = ownA })
			if c.welcome.MAC != ownA {
				t.Errorf("address %v, want %v", c.welcome.MAC, ownA)
			}
			a.ask("the former one", protocol.CfgMAC, ownA[:], protocol.CfgDenied)
			for _, p := range []*peer{a, b, c} {
				p.close()
			}
			testenv.Eventually(t, func() bool {
				return len(s.unit.Status().Hosts) == 0 && slices.Equal(testenv.Links(t, s.unitNS), before)
			},
				"links %v as before, are %v", before, testenv.Links(t, s.unitNS))
		})
	}
}

// TestNetnsServiceFilter chooses the multicast groups whose frames a host receives.
func TestNetnsServiceFilter(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := newShared(t, kind, "")
			p := s.peer("a")
			round := func(what, want string) {
				t.Helper()
				s.send(marked(group1, station, '1', 0))
				s.send(marked(group2, station, '2', 0))
				// Groups that may pass the kernel's filter, which uses a hash.
				for i := range byte(32) {
					s.send(marked(protocol.Group{0x33, 0x33, 1, 2, 3, i}, station, '3', 0))
				}
				s.send(marked(toAll, station, '9', 0))
				if got := p.marks('9'); got != want+"9" {
					t.Errorf("%s: %q, want %q", what, got, want)
				}
			}
			round("at first", "12"+strings.Repeat("3", 32))
			p.filter(protocol.ReceiveFilter{Multicast: []protocol.Group{group2}}, protocol.CfgOK)
			round("one group", "2")
			if kind == "macvtap" {
				if got := groupsOf(t, s.unitNS, s.unit.Status().Hosts[0].Interface); !slices.Contains(got,
					hex.EncodeToString(group2[:])) {
					t.Errorf("the kernel lists %v", got)
				}
			}
			h := s.unit.Status().Hosts[0]
			if h.Filter.AllMulti || len(h.Filter.Multicast) != 1 || h.Statistics.RxFiltered == 0 && kind == "tap" {
				t.Errorf("status: %+v", h)
			}
			if kind == "tap" { // a port of a bridge needs no permission
				p.filter(protocol.ReceiveFilter{Promisc: true}, protocol.CfgOK)
				round("promiscuous", "12"+strings.Repeat("3", 32))
			} else {
				p.filter(protocol.ReceiveFilter{Promisc: true}, protocol.CfgDenied)
				round("after a refusal", "2")
			}
			p.filter(protocol.ReceiveFilter{}, protocol.CfgOK)
			round("none", "")
			p.ask("reset", protocol.CfgReset, nil, protocol.CfgOK)
			round("reset", "12"+strings.Repeat("3", 32))
		})
	}
}

// groupsOf returns the groups that the kernel lists for a device.
func groupsOf(t *testing.T, ns, dev string) []string {
	t.Helper()
	var text []byte
	err := netns.Do(ns, func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/dev_mcast")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var groups []string
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 5 && f[1] == dev {
			groups = append(groups, f[4])
		}
	}
	return groups
}

// TestNetnsServicePromisc expects a host in promiscuous mode to receive frames for another host, if
// the policy permits this.
func TestNetnsServicePromisc(t *testing.T) {
	for _, kind := range []string{"macvtap", "packet"} {
		t.Run(kind, func(t *testing.T) {
			s := newShared(t, kind, "default:\n  promiscuous: yes\n  macs: any\n")
			a, b := s.peer("a"), s.peer("b")
			round := func(what, want string) {
				t.Helper()
				s.send(marked(b.welcome.MAC, station, '1', 0))
				if got := b.marks('1'); got != "1" {
					t.Errorf("%s: the other host received %q", what, got)
				}
				s.send(marked(somebody, station, '2', 0))
				s.send(marked(a.welcome.MAC, station, '3', 0))
				a.send(marked(somebody, machine, '4', 0)) // this frame must not come back
				s.send(marked(a.welcome.MAC, station, '9', 0))
				got := []byte(a.marks('9'))
				if slices.Sort(got); string(got) != want {
					t.Errorf("%s: %q, want %q", what, got, want)
				}
			}
			round("at first", "39")
			// A card that cannot filter by several addresses is always promiscuous.
			promisc := func() int { return testenv.Link(t, s.unitNS, "eth1").Attrs().Promisc }
			before := promisc()
			a.filter(protocol.ReceiveFilter{Promisc: true}, protocol.CfgOK)
			// The second socket is a separate path: the test waits for the frame that takes it.
			s.send(marked(somebody, station, '0', 0))
			if got := a.marks('0'); got != "0" {
				t.Errorf("promiscuous, %q came", got)
			}
			s.send(marked(b.welcome.MAC, station, '1', 0))
			if got := a.marks('1') + b.marks('1'); got != "11" {
				t.Errorf("promiscuous, %q came to both", got)
			}
			a.filter(protocol.ReceiveFilter{AllMulti: true}, protocol.CfgOK)
			round("no longer", "39")
			a.filter(protocol.ReceiveFilter{Promisc: true}, protocol.CfgOK)
			if kind == "macvtap" && promisc() != before+1 {
				t.Errorf("the card is promiscuous %d times, before %d", promisc(), before)
			}
			a.close()
			testenv.Eventually(t, func() bool { return promisc() <= before }, "a card that is no more promiscuous than before")
		})
	}
}

// TestNetnsPolicyPromiscuous permits promiscuous mode after the I/O unit has refused it to a host.
// The host has to request the mode again by itself.
func TestNetnsPolicyPromiscuous(t *testing.T) {
	s := newTestbed(t, "macvtap", 1500)
	testenv.Veth(t, s.hostNS, "p0", s.hostNS, "p1")
	testenv.Bridge(t, s.hostNS, "br0", "sn0", "p0")
	refused := func() bool { return s.host.Status().LastRefusal != nil }
	testenv.Eventually(t, refused, "nothing was refused")
	s.unit.SetPolicy(rules(t, "default: {promiscuous: yes}\n"))
	promisc := func() bool { return s.unit.Status().Hosts[0].Filter.Promisc }
	testenv.Eventually(t, promisc, "no promiscuous mode")
}

// TestNetnsPolicySource sends frames with source addresses that a host may not use.
func TestNetnsPolicySource(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := newShared(t, kind, "default: {macs: any}\n")
			a, b := s.peer("a"), s.peer("b")
			l := listener{testenv.ListenRaw(t, s.lanNS, "lan0")}
			for i, src := range []protocol.MAC{b.welcome.MAC, s.cardMAC(), {}, protocol.MAC(group1), machine, a.welcome.MAC} {
				a.send(marked(toAll, src, byte('1'+i), 0))
			}
			if got := l.marks('6'); got != "56" {
				t.Errorf("the LAN received %q", got)
			}
			if got := b.marks('6'); got != "56" {
				t.Errorf("the other host received %q", got)
			}
			// A frame is counted after it has arrived.
			testenv.Eventually(t, func() bool {
				st, err := protocol.DecodeStatistics(a.ask("statistics", protocol.CfgStatsRead, nil, protocol.CfgOK))
				return err == nil && st.TxFrames == 2
			}, "two frames being counted")
			st, err := protocol.DecodeStatistics(a.ask("statistics", protocol.CfgStatsClear, nil, protocol.CfgOK))
			if err != nil || st.TxSource != 4 || st.TxFrames != 2 || st.TxVLAN != 0 {
				t.Errorf("%+v, %v", st, err)
			}
			if st, err = protocol.DecodeStatistics(a.ask("statistics", protocol.CfgStatsRead, nil,
				protocol.CfgOK)); err != nil || st.TxSource != 0 || st.TxFrames != 0 {
				t.Errorf("cleared: %+v, %v", st, err)
			}
		})
	}
}

// TestNetnsPolicyCardAddress gives the card an address that a host may have. From then on the host
// may not use it as source address. The address of a bridge changes when a port is added.
func TestNetnsPolicyCardAddress(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := newShared(t, kind, "default: {macs: any}\n")
			a := s.peer("a")
			next := protocol.MAC{0, 0, 0, 0, 0x0e, 2}
			refused := func() uint64 {
				a.send(marked(toAll, next, '1', 0))
				st, err := protocol.DecodeStatistics(a.ask("statistics", protocol.CfgStatsRead, nil, protocol.CfgOK))
				if err != nil {
					t.Fatal(err)
				}
				return st.TxSource
			}
			if n := refused(); n != 0 {
				t.Errorf("%d frames were refused before", n)
			}
			if kind == "tap" {
				testenv.Veth(t, s.unitNS, "further", s.lanNS, "lan1")
				testenv.Run(t, s.unitNS, "ip", "link", "set", "further", "address", next.String())
				testenv.Run(t, s.unitNS, "ip", "link", "set", "further", "master", s.nic)
			} else {
				testenv.Run(t, s.unitNS, "ip", "link", "set", s.nic, "address", next.String())
			}
			testenv.Eventually(t, func() bool { return refused() > 0 }, "the card's address being refused")
		})
	}
}

// TestNetnsPolicyVLAN expects that a host sends and receives frames only in its VLANs.
func TestNetnsPolicyVLAN(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := newShared(t, kind, "default:\n  vlans: [5, 6]\n")
			p := s.peer("a")
			own := p.welcome.MAC
			l := listener{testenv.ListenRaw(t, s.lanNS, "lan0")}
			p.send(marked(toAll, own, '1', 5))
			p.send(marked(toAll, own, '2', 7))
			p.send(marked(toAll, own, '3', 6))
			p.send(marked(toAll, own, '4', 0))
			if got := l.marks('4'); got != "134" {
				t.Errorf("the LAN received %q", got)
			}
			round := func(what, want string) {
				t.Helper()
				for i, v := range []uint16{5, 6, 7} {
					s.send(marked(own, station, byte('1'+i), v))
				}
				s.send(marked(own, station, '9', 0))
				if got := p.marks('9'); got != want+"9" {
					t.Errorf("%s: %q, want %q", what, got, want)
				}
			}
			round("at first", "12")
			p.vlans("6", protocol.CfgOK)
			round("one", "2")
			p.vlans("6,7", protocol.CfgDenied)
			round("refused", "2")
			p.vlans("none", protocol.CfgOK)
			round("none", "")
			p.vlans("all", protocol.CfgOK)
			round("all that it may have", "12")
			h := s.unit.Status().Hosts[0]
			if h.Statistics.TxVLAN != 1 || h.Statistics.RxFiltered != 9 || h.VLANs.String() != "5-6" {
				t.Errorf("status: %+v", h)
			}
		})
	}
}

// TestNetnsServiceDown takes a host's port down and up again, and expects that frames pass only
// while it is up.
func TestNetnsServiceDown(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := newShared(t, kind, "")
			a, b := s.peer("a"), s.peer("b")
			l := listener{testenv.ListenRaw(t, s.lanNS, "lan0")}
			a.up(false)
			s.send(marked(toAll, station, '1', 0))
			b.marks('1')
			a.send(marked(toAll, a.welcome.MAC, '2', 0))
			a.ask("statistics", protocol.CfgStatsRead, nil, protocol.CfgOK)
			testenv.Eventually(t, func() bool {
				for _, h := range s.unit.Status().Hosts {
					if h.Name == "a" {
						return !h.Up && h.Statistics.TxFrames+h.Statistics.TxDropped == 1
					}
				}
				return false
			}, "the frame being lost")
			a.up(true)
			if kind == "tap" {
				dev := s.unit.Status().Hosts[0].Interface
				testenv.Eventually(t, func() bool { return testenv.Link(t, s.unitNS, dev).Attrs().OperState == netlink.OperUp },
					"%s being up", dev)
			}
			a.send(marked(toAll, a.welcome.MAC, '3', 0))
			if got := strings.TrimPrefix(l.marks('3'), "1"); got != "3" {
				t.Errorf("the LAN received %q", got)
			}
			s.send(marked(toAll, station, '4', 0))
			if got := a.marks('4'); got != "4" {
				t.Errorf("the host received %q", got)
			}
		})
	}
}

// TestNetnsServiceMTU sets an MTU below the card's.
func TestNetnsServiceMTU(t *testing.T) {
	s := newShared(t, "macvtap", "")
	p := s.peer("a")
	mtu := func(mtu int, want protocol.CfgStatus) {
		t.Helper()
		p.ask("MTU", protocol.CfgMTU, protocol.AppendMTU(nil, mtu), want)
	}
	mtu(1501, protocol.CfgDenied)
	mtu(1000, protocol.CfgOK)
	if got := s.unit.Status().Hosts[0].MTU; got != 1000 {
		t.Errorf("the status says %d", got)
	}
	// A frame over the MTU is dropped on its way to the LAN.
	l := listener{testenv.ListenRaw(t, s.lanNS, "lan0")}
	p.send(append(marked(toAll, p.welcome.MAC, '1', 0), make([]byte, 1200)...))
	p.send(marked(toAll, p.welcome.MAC, '2', 0))
	if got := l.marks('2'); got != "2" {
		t.Errorf("the LAN received %q", got)
	}
}

// TestNetnsOversize sends frames with two VLAN tags that fill the MTU. A card with an MTU of 1500
// may drop them, and the status has to report this. A card with a larger MTU has to pass them.
func TestNetnsOversize(t *testing.T) {
	s := newShared(t, "macvtap", "")
	p := s.peer("a")
	l := listener{testenv.ListenRaw(t, s.lanNS, "lan0")}
	nested := func(mark byte) []byte {
		f := marked(toAll, p.welcome.MAC, mark, 5)
		f = append(f, make([]byte, vnet.HdrLen+1518-len(f))...)
		f = append(make([]byte, vnet.Headroom), f...)
		vnet.InsertVLAN(f, 0x88a8, 7)
		return f
	}
	counted := func(want uint64) {
		t.Helper()
		testenv.Eventually(t, func() bool { return s.unit.Status().Hosts[0].TxOversize == want }, "%d oversize frames", want)
	}
	p.send(nested('1'))
	p.send(marked(toAll, p.welcome.MAC, '2', 0))
	if got := l.marks('2'); got != "2" { // a veth drops it
		t.Errorf("the LAN received %q", got)
	}
	counted(1)
	for ns, name := range map[string]string{s.unitNS: "eth1", s.lanNS: "lan0"} {
		testenv.With(t, ns, func(h *netlink.Handle) error { return h.LinkSetMTU(testenv.Link(t, ns, name), 1600) })
	}
	p.ask("MTU", protocol.CfgMTU, protocol.AppendMTU(nil, 1500), protocol.CfgOK)
	p.send(nested('3'))
	l.Next(func(f []byte) bool { return bytes.Contains(f, []byte{0x88, 0xb5, '3'}) })
	counted(1)
}

// TestPolicyRefuses expects that hellos against the policy are refused, without permission to retry
// if waiting does not help.
func TestPolicyRefuses(t *testing.T) {
	for _, tc := range []struct {
		name, rules string
		hello       func(*session.Hello)
		budget      int64
		code        session.Code
		retry       bool
	}{
		{"address", "default:\n  macs: 02:aa:*\n", func(h *session.Hello) { h.MAC = machine }, 0, session.CodePolicy, false},
		{"address without a policy", "", func(h *session.Hello) { h.MAC = machine }, 0, session.CodePolicy, false},
		{"address kept for another", "default: {macs: any}\nhosts: {gateway: {macs: \"02:33:*\"}}\n",
			func(h *session.Hello) { h.MAC = machine }, 0, session.CodePolicy, false},
		{"unbound", "default: {require-bind: yes}\n", func(h *session.Hello) {
			h.Features = slices.DeleteFunc(h.Features, func(f string) bool { return f == protocol.FeatureBind })
		}, 0, session.CodePolicy, false},
		{"mode", "default:\n  modes: send\n", nil, 0, session.CodeMode, false},
		{"memory of the host", "default:\n  max-memory: 4k\n", nil, 0, session.CodePolicy, false},
		{"memory of all", "", nil, 4096, session.CodeBusy, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newShared(t, "macvtap", tc.rules, func(c *iounit.Config) {
				if tc.budget > 0 {
					c.Messaging.Budget = messaging.NewBudget(tc.budget)
				}
			})
			var hello []func(*session.Hello)
			if tc.hello != nil {
				hello = append(hello, tc.hello)
			}
			_, err := s.tryPeer("a", hello...)
			var refused *session.RefusedError
			if !errors.As(err, &refused) || refused.Code != tc.code || refused.Retry != tc.retry {
				t.Errorf("%v, want code %s, retry %t", err, tc.code, tc.retry)
			}
			testenv.Explained(t, fmt.Sprintf("open a session with the I/O unit at unit: %v", refused))
			testenv.Eventually(t, func() bool { return len(testenv.Links(t, s.unitNS)) == 2 }, "nothing being left on the card")
		})
	}
	t.Run("sessions of a key", func(t *testing.T) {
		s := newShared(t, "macvtap", "default:\n  max-sessions: 2\n")
		s.peer("a")
		b := s.peer("b")
		_, err := s.tryPeer("c")
		var refused *session.RefusedError
		if !errors.As(err, &refused) || refused.Code != session.CodeFull || !refused.Retry {
			t.Errorf("a third session: %v", err)
		}
		b.close()
		n := 0
		testenv.Eventually(t, func() bool {
			n++
			_, err := s.tryPeer(fmt.Sprint("c", n)) // as a host that may try again does
			return err == nil
		}, "a session in the place of one that has ended")
	})
	t.Run("granted", func(t *testing.T) {
		s := newShared(t, "macvtap", "default:\n  macs: 02:aa:*\n  modes: [indicate, imm]\n  max-queues: 1\n",
			func(c *iounit.Config) { c.MaxQueues = 4 })
		p := s.peer("a", func(h *session.Hello) {
			h.Queues = 2
			h.Modes = []protocol.Mode{protocol.ModeSend,
				protocol.ModeImm}
		})
		if w := p.welcome; !strings.HasPrefix(w.MAC.String(), "02:aa:") || w.Mode != protocol.ModeImm || w.Queues != 1 {
			t.Errorf("%+v", w)
		}
	})
}

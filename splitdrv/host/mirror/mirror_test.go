package mirror

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/tap"
)

var (
	ownMAC   = protocol.MAC{2, 0, 0, 0, 0, 1} // the netdevice's first address
	unitMAC  = protocol.MAC{2, 0, 0, 0, 0, 2} // the address that the I/O unit grants
	adminMAC = protocol.MAC{2, 0, 0, 0, 0, 3}
	otherMAC = protocol.MAC{2, 0, 0, 0, 0, 4}
)

// netdevice is a simulated netdevice that applies Changes, with the last request to the I/O unit.
type netdevice struct {
	Mirror
	state tap.State
	asked *Request
}

// do applies changes to the netdevice, and returns a description of them.
func (n *netdevice) do(c Changes) string {
	var out []string
	say := func(due bool, format string, args ...any) {
		if due {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	if r := c.Rejected; r != nil {
		say(true, "rejected %s %s (%s)", r.What, r.Wanted, r.Reason)
	}
	say(c.Unsupported, "unsupported")
	say(c.SessionMTU != 0, "session MTU %d", c.SessionMTU)
	if c.MAC != (protocol.MAC{}) {
		say(true, "MAC %v", c.MAC)
		n.state.MAC = net.HardwareAddr(c.MAC[:])
	}
	if c.MTU != 0 {
		say(true, "MTU %d", c.MTU)
		n.state.MTU = c.MTU
	}
	if c.PromiscOff {
		say(true, "promisc off")
		n.state.Promisc, n.state.PromiscSet = false, false
	}
	if c.AllMultiOff {
		say(true, "allmulti off")
		n.state.AllMulti, n.state.AllMultiSet = false, false
	}
	return strings.Join(out, ", ")
}

// event makes an event happen, and returns a description of the reaction.
type event func(*netdevice) string

func open(n *netdevice) string {
	mac, c := n.Open(&n.state, time.Time{})
	return strings.TrimSuffix(fmt.Sprintf("hello %v, %s", mac, n.do(c)), ", ")
}

func grant(mac protocol.MAC, mtu int) event {
	return func(n *netdevice) string {
		out := n.do(n.Grant(&n.state, mac, mtu, time.Time{}))
		n.SetPhase(Established)
		return out
	}
}

func end(n *netdevice) string { n.SetPhase(NoSession); return "" }

func next(n *netdevice) string {
	r, c := n.Next(&n.state, time.Time{})
	n.asked = r
	if r != nil {
		return fmt.Sprintf("ask %v %s", r.Type, r.wanted)
	}
	return n.do(c)
}

func reply(status protocol.CfgStatus, data []byte) event {
	return func(n *netdevice) string { return n.do(n.Reply(n.asked, status, data, &n.state, time.Time{})) }
}

var (
	ok          = reply(protocol.CfgOK, nil)
	denied      = reply(protocol.CfgDenied, nil)
	unsupported = reply(protocol.CfgUnsupported, nil)
)

func set(change func(*tap.State)) event {
	return func(n *netdevice) string { change(&n.state); return "" }
}

func setMAC(mac protocol.MAC) event {
	return set(func(s *tap.State) { s.MAC = net.HardwareAddr(mac[:]) })
}
func setMTU(mtu int) event { return set(func(s *tap.State) { s.MTU = mtu }) }
func setVLANs(v ...int) event {
	return set(func(s *tap.State) { s.VLANs = v })
}

func peerMTU(mtu int) event {
	return func(n *netdevice) string {
		have, c := n.PeerMTU(&n.state, mtu)
		return fmt.Sprintf("have %d, %s", have, n.do(c))
	}
}

func peerMAC(mac protocol.MAC) event {
	return func(n *netdevice) string { return n.do(n.PeerMAC(&n.state, mac)) }
}

func giveUpMAC(n *netdevice) string {
	again, c := n.GiveUpMAC(&n.state, "policy", time.Time{})
	return strings.TrimSuffix(fmt.Sprintf("again %t, %s", again, n.do(c)), ", ")
}

func reset(n *netdevice) string { return n.do(n.Reset(&n.state)) }

func askAgain(n *netdevice) string { return fmt.Sprint(n.Rejects(), n.AskAgain()) }

func promisc(n *netdevice) string { n.state.Promisc, n.state.PromiscSet = true, true; return "" }

// step is an event, and the expected description of the reaction.
type step struct {
	event
	want string
}

// session returns the steps that begin a session and transfer the settings of an ordinary netdevice
// to the I/O unit.
func session(mtu int) []step {
	return []step{
		{open, "hello 00:00:00:00:00:00"},
		{next, ""}, // no request before the grant
		{grant(unitMAC, mtu), fmt.Sprintf("MAC %v, MTU %d", unitMAC, mtu)},
		{next, "ask link state down"}, {ok, ""},
		{next, "ask receive filter 0 groups"}, {ok, ""},
		{next, "ask VLANs none"}, {ok, ""},
		{next, ""},
	}
}

// TestMirror changes the netdevice and the I/O unit in turn, and checks the reactions and the
// agreement.
func TestMirror(t *testing.T) {
	key := func(key string) string {
		return "the I/O unit: denied; `" + key + "` in its policy says what this host may have"
	}
	macsKey := key("macs")
	for _, c := range []struct {
		name  string
		mac   protocol.MAC // the configured address
		began bool         // the steps of session come first
		steps []step
		want  Agreement
	}{
		{name: "a session", began: true, want: Agreement{MAC: unitMAC, MTU: 1500, Granted: true}},
		{
			name: "what is set before is asked for", steps: []step{
				{setMAC(adminMAC), ""}, {setMTU(1400), ""}, {next, ""},
				{open, "hello " + adminMAC.String()},
				{grant(adminMAC, 1500), "MAC " + adminMAC.String() + ", MTU 1400"},
			}, want: Agreement{MAC: adminMAC, MTU: 1400, Granted: true, WantMAC: adminMAC, WantMTU: 1400},
		},
		{
			name: "what nobody can have is set back at once", steps: []step{
				{setMTU(9001), ""}, {next, "rejected MTU 9001 (" + overMaxMTU + "), MTU 1500"}, {next, ""},
			}, want: Agreement{MAC: ownMAC, MTU: 1500},
		},
		{
			name: "also in a session, and the I/O unit is not asked", began: true, steps: []step{
				{setMTU(9001), ""}, {next, "rejected MTU 9001 (" + overMaxMTU + "), MTU 1500"}, {next, ""},
			}, want: Agreement{MAC: unitMAC, MTU: 1500, Granted: true},
		},
		{
			name: "the configured address", mac: otherMAC, steps: []step{{open, "hello " + otherMAC.String()}},
			want: Agreement{MAC: ownMAC, MTU: 1500},
		},
		{
			name: "the administrator's counts more", mac: otherMAC, steps: []step{
				{setMAC(adminMAC), ""}, {open, "hello " + adminMAC.String()},
			}, want: Agreement{MAC: adminMAC, MTU: 1500, WantMAC: adminMAC},
		},
		{
			name: "a granted address stays", began: true, steps: []step{
				{end, ""}, {open, "hello " + unitMAC.String()},
				{grant(unitMAC, 1500), "MAC " + unitMAC.String() + ", MTU 1500"},
			}, want: Agreement{MAC: unitMAC, MTU: 1500, Granted: true},
		},
		{
			name: "it is given up once", began: true, steps: []step{
				{end, ""}, {open, "hello " + unitMAC.String()}, {giveUpMAC, "again true"},
				{open, "hello 00:00:00:00:00:00"}, {open, "hello " + unitMAC.String()},
			}, want: Agreement{MAC: unitMAC, MTU: 1500, Granted: true},
		},
		{
			name: "the administrator's first, and set back", began: true, steps: []step{
				{end, ""}, {setMAC(adminMAC), ""}, {open, "hello " + adminMAC.String()},
				{giveUpMAC, fmt.Sprintf("again true, rejected MAC %v (policy), MAC %v", adminMAC, unitMAC)},
				{open, "hello " + unitMAC.String()},
			}, want: Agreement{MAC: unitMAC, MTU: 1500, Granted: true},
		},
		{name: "none to give up", steps: []step{{giveUpMAC, "again false"}}, want: Agreement{MAC: ownMAC, MTU: 1500}},
		{
			name: "changed while the session came about", steps: []step{
				{open, "hello 00:00:00:00:00:00"}, {setMAC(adminMAC), ""}, {setMTU(1400), ""},
				{grant(unitMAC, 1500), ""},
				{next, "ask link state down"}, {ok, ""},
				{next, "ask MAC " + adminMAC.String()}, {ok, ""}, {next, "ask MTU 1400"}, {ok, "session MTU 1500"},
			}, want: Agreement{MAC: adminMAC, MTU: 1400, Granted: true, WantMAC: adminMAC, WantMTU: 1400},
		},
		{
			name: "an address refused", began: true, steps: []step{
				{setMAC(adminMAC), ""}, {next, "ask MAC " + adminMAC.String()},
				{denied, fmt.Sprintf("rejected MAC %v (%s), MAC %v", adminMAC, macsKey, unitMAC)}, {next, ""},
			}, want: Agreement{MAC: unitMAC, MTU: 1500, Granted: true},
		},
		{
			name: "an address changed again meanwhile", began: true, steps: []step{
				{setMAC(adminMAC), ""}, {next, "ask MAC " + adminMAC.String()}, {setMAC(otherMAC), ""},
				{denied, fmt.Sprintf("rejected MAC %v (%s)", adminMAC, macsKey)}, {next, "ask MAC " + otherMAC.String()},
			}, want: Agreement{MAC: unitMAC, MTU: 1500, Granted: true},
		},
		{
			name: "another address than asked for", began: true, steps: []step{
				{setMAC(adminMAC), ""}, {next, "ask MAC " + adminMAC.String()},
				{reply(protocol.CfgOK, otherMAC[:]), "MAC " + otherMAC.String()}, {next, ""},
			}, want: Agreement{MAC: otherMAC, MTU: 1500, Granted: true, WantMAC: otherMAC},
		},
		{
			name: "an address cannot be done without", began: true, steps: []step{
				{setMAC(adminMAC), ""}, {next, "ask MAC " + adminMAC.String()},
				{unsupported, fmt.Sprintf("rejected MAC %v (the I/O unit: unsupported), MAC %v", adminMAC, unitMAC)},
			}, want: Agreement{MAC: unitMAC, MTU: 1500, Granted: true},
		},
		{
			name: "a smaller MTU of the I/O unit's, and a larger one", began: true, steps: []step{
				{peerMTU(1300), "have 1300, session MTU 1300, MTU 1300"}, {next, ""},
				{peerMTU(9500), "have 9000, session MTU 9000, MTU 9000"}, {next, ""},
			}, want: Agreement{MAC: unitMAC, MTU: 9000, Granted: true},
		},
		{
			name: "the administrator's MTU is the most", began: true, steps: []step{
				{setMTU(1400), ""}, {next, "ask MTU 1400"}, {ok, "session MTU 1500"},
				{peerMTU(9000), "have 1400, session MTU 9000, MTU 1400"}, {next, "ask MTU 1400"}, {ok, "session MTU 9000"},
				{peerMTU(1300), "have 1300, session MTU 1300, MTU 1300"},
				{peerMTU(9000), "have 1400, session MTU 9000, MTU 1400"},
			}, want: Agreement{MAC: unitMAC, MTU: 1400, Granted: true, WantMTU: 1400},
		},
		{
			name: "an MTU refused", began: true, steps: []step{
				{setMTU(2000), ""}, {next, "ask MTU 2000"},
				{denied, "rejected MTU 2000 (the I/O unit: denied), MTU 1500"}, {next, ""},
			}, want: Agreement{MAC: unitMAC, MTU: 1500, Granted: true},
		},
		{
			name: "the I/O unit's MTU changes while it is asked", began: true, steps: []step{
				{setMTU(1400), ""}, {next, "ask MTU 1400"}, {peerMTU(1200), "have 1200, session MTU 1200"},
				{ok, "session MTU 1200, MTU 1200"}, {next, ""},
			}, want: Agreement{MAC: unitMAC, MTU: 1200, Granted: true, WantMTU: 1400},
		},
		{
			name: "a card that is smaller than what was wanted", began: true, steps: []step{
				{setMTU(1400), ""}, {next, "ask MTU 1400"}, {ok, "session MTU 1500"},
				{end, ""}, {open, "hello " + unitMAC.String()},
				{grant(unitMAC, 1300), fmt.Sprintf("rejected MTU 1400 (%s), MAC %v, MTU 1300", overNIC, unitMAC)},
			}, want: Agreement{MAC: unitMAC, MTU: 1300, Granted: true, WantMTU: 1400},
		},
		{
			name: "the I/O unit changes the address", began: true, steps: []step{
				{setMAC(adminMAC), ""}, {next, "ask MAC " + adminMAC.String()}, {ok, ""},
				{peerMAC(otherMAC), "MAC " + otherMAC.String()},
			}, want: Agreement{MAC: otherMAC, MTU: 1500, Granted: true},
		},
		{
			name: "both change the address", began: true, steps: []step{
				{setMAC(adminMAC), ""}, {peerMAC(otherMAC), ""}, {next, "ask MAC " + adminMAC.String()},
			}, want: Agreement{MAC: otherMAC, MTU: 1500, Granted: true},
		},
		{
			name: "promiscuous mode refused: all multicast instead, then all VLANs not", began: true, steps: []step{
				{promisc, ""}, {next, "ask receive filter 0 groups, promiscuous"},
				{denied, "rejected promiscuous mode on (" + key("promiscuous") + "), promisc off"},
				{next, ""},
			}, want: Agreement{MAC: unitMAC, MTU: 1500, Granted: true},
		},
		{
			name: "asked for again, and refused again: no news", began: true, steps: []step{
				{askAgain, "false false"},
				{set(func(s *tap.State) { s.Promisc, s.Unicast = true, []net.HardwareAddr{otherMAC[:]} }), ""},
				{next, "ask receive filter 0 groups, 1 more addresses, promiscuous"},
				{denied, "rejected promiscuous mode on (" + key("promiscuous") + ")"},
				{next, "ask receive filter 0 groups, 1 more addresses, all multicast"},
				{denied, fmt.Sprintf("rejected unicast addresses [%v] (%s)", otherMAC, macsKey)},
				{next, "ask receive filter 0 groups, all multicast"}, {ok, ""}, {next, ""},
				{askAgain, "true true"}, {askAgain, "false false"},
				{next, "ask receive filter 0 groups, 1 more addresses, promiscuous"}, {denied, ""},
				{next, "ask receive filter 0 groups, 1 more addresses, all multicast"}, {denied, ""}, {next, ""},
				{askAgain, "true true"},
				{next, "ask receive filter 0 groups, 1 more addresses, promiscuous"}, {ok, ""},
				{next, "ask VLANs all"}, {ok, ""}, {next, ""}, {askAgain, "false false"},
				{set(func(s *tap.State) { s.Promisc, s.Unicast = false, nil }), ""},
				{next, "ask receive filter 0 groups"}, {ok, ""}, {next, "ask VLANs none"}, {ok, ""},
				{set(func(s *tap.State) { s.Promisc = true }), ""}, {next, "ask receive filter 0 groups, promiscuous"},
				{denied, "rejected promiscuous mode on (" + key("promiscuous") + ")"},
				{end, ""}, {askAgain, "true false"},
			}, want: Agreement{MAC: unitMAC, MTU: 1500, Granted: true},
		},
		{
			name: "by a capture, which cannot be ended", began: true, steps: []step{
				{set(func(s *tap.State) { s.Promisc = true }), ""}, {next, "ask receive filter 0 groups, promiscuous"},
				{denied, "rejected promiscuous mode on (" + key("promiscuous") + ")"},
				{next, "ask receive filter 0 groups, all multicast"}, {denied, "rejected all multicast on (the I/O unit: denied)"},
				{next, ""},
				{set(func(s *tap.State) { s.Promisc = false }), ""}, {next, ""},
				{promisc, ""}, {next, "ask receive filter 0 groups, promiscuous"}, // asked again
			}, want: Agreement{MAC: unitMAC, MTU: 1500, Granted: true},
		},
		{
			name: "a filter not supported", began: true, steps: []step{
				{set(func(s *tap.State) { s.Multicast = []net.HardwareAddr{{1, 0, 0x5e, 0, 0, 1}} }), ""},
				{next, "ask receive filter 1 groups"}, {unsupported, "unsupported"}, {next, ""},
			}, want: Agreement{MAC: unitMAC, MTU: 1500, Granted: true},
		},
		{
			name: "groups refused are not asked for again", began: true, steps: []step{
				{set(func(s *tap.State) { s.Multicast = []net.HardwareAddr{{1, 0, 0x5e, 0, 0, 1}} }), ""},
				{next, "ask receive filter 1 groups"},
				{denied, "rejected receive filter 1 groups (the I/O unit: denied)"}, {next, ""},
			}, want: Agreement{MAC: unitMAC, MTU: 1500, Granted: true},
		},
		{
			name: "both change the MTU: he has the smaller one, and nobody asks", began: true, steps: []step{
				{setMTU(1400), ""}, {peerMTU(1450), "have 1400, session MTU 1450, MTU 1400"}, {next, "ask MTU 1400"},
			}, want: Agreement{MAC: unitMAC, MTU: 1400, Granted: true, WantMTU: 1400},
		},
		{
			name: "changed while the session is opened again", began: true, steps: []step{
				{end, ""}, {open, "hello " + unitMAC.String()}, {setMAC(adminMAC), ""}, {next, ""},
			}, want: Agreement{MAC: unitMAC, MTU: 1500, Granted: true},
		},
		{
			name: "further addresses refused", began: true, steps: []step{
				{set(func(s *tap.State) { s.Unicast = []net.HardwareAddr{net.HardwareAddr(otherMAC[:])} }), ""},
				{next, "ask receive filter 0 groups, 1 more addresses"},
				{denied, fmt.Sprintf("rejected unicast addresses [%v] (%s)", otherMAC, macsKey)}, {next, ""},
			}, want: Agreement{MAC: unitMAC, MTU: 1500, Granted: true},
		},
		{
			name: "one VLAN of three refused", began: true, steps: []step{
				{setVLANs(5, 6, 7), ""}, {next, "ask VLANs 5-7"}, {denied, ""},
				{next, "ask VLANs 5"}, {ok, ""},
				{next, "ask VLANs 5-6"}, {denied, "rejected VLANs 6 (" + key("vlans") + ")"},
				{next, "ask VLANs 5,7"}, {ok, ""}, {next, ""},
				{setVLANs(5, 7), ""}, {next, ""}, {setVLANs(5, 6), ""},
				{next, "ask VLANs 5-6"}, // VLAN 6 was not wanted meanwhile
			}, want: Agreement{MAC: unitMAC, MTU: 1500, Granted: true},
		},
		{
			name: "reset", began: true, steps: []step{
				{setMTU(1400), ""}, {next, "ask MTU 1400"}, {ok, "session MTU 1500"},
				{promisc, ""}, {setMAC(adminMAC), ""}, {next, "ask MAC " + adminMAC.String()}, {ok, ""},
				{reset, fmt.Sprintf("MAC %v, MTU 1500, promisc off", unitMAC)},
				{next, "ask link state down"}, // all settings are requested again
			}, want: Agreement{MAC: unitMAC, MTU: 1500, Granted: true},
		},
		{
			name: "an answer after the end", began: true, steps: []step{
				{setMTU(1400), ""}, {next, "ask MTU 1400"}, {end, ""}, {ok, ""}, {next, ""},
			}, want: Agreement{MAC: unitMAC, MTU: 1400, Granted: true, WantMTU: 1400},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := &netdevice{state: tap.State{MAC: net.HardwareAddr(ownMAC[:]), MTU: 1500}}
			n.Mirror = New(Config{MAC: c.mac, MaxMTU: 9000}, &n.state, nil)
			steps := c.steps
			if c.began {
				steps = slices.Concat(session(1500), steps)
			}
			for i, s := range steps {
				if got := strings.TrimSuffix(s.event(n), ", "); got != s.want {
					t.Fatalf("step %d: %q, want %q", i, got, s.want)
				}
			}
			if got := n.Agreement(); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// TestApplied has the I/O unit apply less than was requested, and expects Applied to return what it
// has applied.
func TestApplied(t *testing.T) {
	n := &netdevice{state: tap.State{MAC: net.HardwareAddr(ownMAC[:]), MTU: 1500, Promisc: true, Trunk: true}}
	n.Mirror = New(Config{MaxMTU: 9000}, &n.state, nil)
	open(n)
	grant(unitMAC, 1500)(n)
	var vlans protocol.VLANSet
	vlans.Add(3)
	for _, s := range []step{
		{next, "ask link state down"}, {ok, ""},
		{next, "ask receive filter 0 groups, promiscuous"},
		{reply(protocol.CfgOK, protocol.AppendReceiveFilter(nil, protocol.ReceiveFilter{AllMulti: true})), ""},
		{next, "ask VLANs all"}, {reply(protocol.CfgOK, protocol.AppendVLANSet(nil, vlans)), ""},
		{next, ""},
	} {
		if got := s.event(n); got != s.want {
			t.Fatalf("%q, want %q", got, s.want)
		}
	}
	a := n.Applied()
	if a.Filter == nil || a.Filter.Promisc || !a.Filter.AllMulti || a.VLANs == nil || *a.VLANs != vlans {
		t.Errorf("%+v", a)
	}
	grant(unitMAC, 1500)(n)
	if a := n.Applied(); a != (Applied{}) {
		t.Errorf("%+v in the next session", a)
	}
}

// TestRejectionUntilGranted rejects a setting and then grants others. It expects LastRejection to
// return the rejection until a setting of the same kind is granted.
func TestRejectionUntilGranted(t *testing.T) {
	allMulti := set(func(s *tap.State) { s.AllMulti, s.AllMultiSet = true, true })
	for _, tc := range []struct {
		name     string
		rejected []event
		what     string
		stays    []event // events that keep the rejection
		granted  []event
	}{
		{
			"MAC", []event{setMAC(adminMAC), next, denied}, "MAC",
			[]event{setMTU(1400), next, ok}, []event{setMAC(otherMAC), next, ok},
		},
		{
			"MTU", []event{setMTU(1600), next, denied}, "MTU",
			[]event{setMAC(otherMAC), next, ok}, []event{setMTU(1400), next, ok},
		},
		{
			"promiscuous", []event{promisc, next, denied}, "promiscuous mode",
			[]event{next, allMulti, next, ok}, []event{promisc, next, ok},
		},
		{
			"all multicast", []event{allMulti, next, denied}, "all multicast",
			[]event{next}, []event{allMulti, next, ok},
		},
		{
			"VLAN", []event{setVLANs(3), next, denied}, "VLANs",
			[]event{setVLANs(4), next, ok}, []event{setVLANs(3, 4), next, ok},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := &netdevice{state: tap.State{MAC: net.HardwareAddr(ownMAC[:]), MTU: 1500}}
			n.Mirror = New(Config{MaxMTU: 9000}, &n.state, nil)
			for _, s := range session(1500) {
				s.event(n)
			}
			for _, e := range append(tc.rejected, tc.stays...) {
				e(n)
			}
			if r := n.LastRejection(); r == nil || r.What != tc.what {
				t.Fatalf("%+v rejected, want %s", r, tc.what)
			}
			for _, e := range tc.granted {
				e(n)
			}
			if r := n.LastRejection(); r != nil {
				t.Errorf("%+v is rejected after it was granted", r)
			}
		})
	}
}

// TestAgreementOutlasts begins with the agreement of an earlier process. It expects differences of
// the netdevice to count as changes by the administrator.
func TestAgreementOutlasts(t *testing.T) {
	for _, c := range []struct {
		name    string
		earlier Agreement
		mac     protocol.MAC // the netdevice's address
		want    string
	}{
		{"granted", Agreement{MAC: unitMAC, MTU: 1500, Granted: true}, unitMAC, "hello " + unitMAC.String()},
		{"not granted", Agreement{MAC: ownMAC, MTU: 1500}, ownMAC, "hello 00:00:00:00:00:00"},
		{"changed since", Agreement{MAC: unitMAC, MTU: 1500, Granted: true}, adminMAC, "hello " + adminMAC.String()},
		{
			"wanted", Agreement{MAC: adminMAC, MTU: 1500, Granted: true, WantMAC: adminMAC},
			adminMAC, "hello " + adminMAC.String(),
		},
		{"nothing", Agreement{}, ownMAC, "hello 00:00:00:00:00:00"},
	} {
		n := &netdevice{state: tap.State{MAC: net.HardwareAddr(c.mac[:]), MTU: 1500}}
		n.Mirror = New(Config{MaxMTU: 9000}, &n.state, &c.earlier)
		if got := open(n); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestGivenUpAddressOfEarlierProcess has a policy refuse the address that the administrator set
// during an earlier process. It expects that the address is not requested again, because it does
// not count as granted.
func TestGivenUpAddressOfEarlierProcess(t *testing.T) {
	n := &netdevice{state: tap.State{MAC: net.HardwareAddr(adminMAC[:]), MTU: 1500}}
	n.Mirror = New(Config{MaxMTU: 9000}, &n.state, &Agreement{MAC: adminMAC, MTU: 1500, Granted: true, WantMAC: adminMAC})
	for _, s := range []step{
		{open, "hello " + adminMAC.String()},
		{giveUpMAC, fmt.Sprintf("again true, rejected MAC %v (policy)", adminMAC)},
		{open, "hello 00:00:00:00:00:00"},
	} {
		if got := s.event(n); got != s.want {
			t.Errorf("%q, want %q", got, s.want)
		}
	}
}

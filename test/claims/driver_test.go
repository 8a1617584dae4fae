package claims

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

func TestNetnsClaim01SplitDriver(t *testing.T) { inMemory(t, splitDriver) }
func TestRDMAClaim01SplitDriver(t *testing.T)  { onSoftRoCE(t, splitDriver) }

// The driver has two parts, one on a host and one on an I/O unit, each with its own device on the
// fabric. Both have the messaging layer: each endpoint posts only message Sends and RDMA writes,
// and receives those of its peer.
func splitDriver(t *testing.T, on fabricOf) {
	s := newTestbed(t, on)
	s.pings(s.hostNS, lanAddr, 100, 700)
	if s.pick(hostSide, qpMade)[0].device == s.pick(unitSide, qpMade)[0].device {
		t.Error("both endpoints are on one device")
	}
	for _, side := range sides {
		ops := map[fabric.Opcode]int{}
		for _, e := range s.pick(side, sendPosted) {
			ops[e.send.Op]++
		}
		frames := 0
		for _, w := range s.writes(side) {
			in, err := framesIn(w.data)
			if err != nil {
				t.Errorf("a write of the %s: %v", side, err)
			}
			frames += len(in)
		}
		if ops[fabric.OpSend] == 0 || frames < 100 || len(ops) != 2 {
			t.Errorf("the %s has %d frames in its writes for 100 packets, and posted %v", side, frames, ops)
		}
		got := map[fabric.Opcode]int{}
		for _, e := range s.pick(side, recvDone) {
			got[e.done.Op]++
		}
		if n := got[fabric.OpRecvWriteImm]; got[fabric.OpRecv] == 0 || n == 0 || on.plain && n < 100 {
			t.Errorf("the %s got %v", side, got)
		}
	}
	if s.host.Status().IOUnit.Name != "unit" {
		t.Errorf("the host's status: %+v", s.host.Status())
	}
}

func TestNetnsClaim09HostUnit(t *testing.T) { inMemory(t, hostUnit) }
func TestRDMAClaim09HostUnit(t *testing.T)  { onSoftRoCE(t, hostUnit) }

// The apparatus of the claim is a host.
func hostUnit(t *testing.T, on fabricOf) {
	s := newTestbed(t, on)
	s.pings(s.hostNS, lanAddr, 100, 56)
	if err := s.apparatus(hostSide); err != nil {
		t.Error(err)
	}
}

func TestNetnsClaim10IOUnit(t *testing.T) { inMemory(t, ioUnit) }
func TestRDMAClaim10IOUnit(t *testing.T)  { onSoftRoCE(t, ioUnit) }

// The apparatus of the claim is an I/O unit.
func ioUnit(t *testing.T, on fabricOf) {
	s := newTestbed(t, on)
	s.pings(s.lanNS, hostAddr, 100, 56)
	if err := s.apparatus(unitSide); err != nil {
		t.Error(err)
	}
}

// carried checks that all marked packets that a network stack sent at one side left through the
// channel adapter of that side, in RDMA writes, and that the side's control messages carry none of
// them. apparatus checks the rest.
func (s *testbed) carried(side string, packets int) error {
	if err := s.apparatus(side); err != nil {
		return err
	}
	marked, err := s.marked(side)
	if err != nil {
		return err
	}
	if marked != packets {
		return fmt.Errorf("%d packets of the %s are in its writes, %d were sent", marked, side, packets)
	}
	for _, e := range s.pick(side, sendPosted) {
		if s.channel(side, e.qpn) == 0 && bytes.Contains(e.data, []byte(mark)) {
			return fmt.Errorf("a packet of the %s is in a control message", side)
		}
	}
	mine, theirs := s.pick(side, qpMade)[0].device, s.pick(other(side), qpMade)[0].device
	for _, e := range s.pick(side, qpMade, connected, sendPosted, recvDone) {
		if e.device != mine || mine == theirs {
			return fmt.Errorf("the %s uses %s, its channel adapter is %s and the other side's %s", side, e.device, mine, theirs)
		}
	}
	return nil
}

func TestNetnsClaim15HostChannelAdapter(t *testing.T) { inMemory(t, hostChannelAdapter) }
func TestRDMAClaim15HostChannelAdapter(t *testing.T)  { onSoftRoCE(t, hostChannelAdapter) }

// Packets that a host's operating system sends into its netdevice leave through the host's channel
// adapter.
func hostChannelAdapter(t *testing.T, on fabricOf) {
	s := newTestbed(t, on)
	s.pings(s.hostNS, lanAddr, 100, 1000)
	if err := s.carried(hostSide, 100); err != nil {
		t.Error(err)
	}
}

func TestNetnsClaim16TargetChannelAdapter(t *testing.T) { inMemory(t, targetChannelAdapter) }
func TestRDMAClaim16TargetChannelAdapter(t *testing.T)  { onSoftRoCE(t, targetChannelAdapter) }

// Packets from the LAN that arrive at an I/O unit's network card leave for the host through the I/O
// unit's channel adapter.
func targetChannelAdapter(t *testing.T, on fabricOf) {
	s := newTestbed(t, on)
	s.pings(s.lanNS, hostAddr, 100, 1000)
	if err := s.carried(unitSide, 100); err != nil {
		t.Error(err)
	}
}

func TestNetnsLocalObjects(t *testing.T) { inMemory(t, localObjects) }
func TestRDMALocalObjects(t *testing.T)  { onSoftRoCE(t, localObjects) }

// With a bridge as the LAN, an I/O unit passes frames between a host and what is on its own machine:
// here the protocols of its operating system, which have an address on the bridge. Stations behind
// the card, which is another port of the bridge, are reached too.
func localObjects(t *testing.T, on fabricOf) {
	s := newTestbedOn(t, on, onBridge)
	cardFrames := func() uint64 {
		n := testenv.Link(t, s.cardNS, "eth1").Attrs().Statistics
		return n.RxPackets + n.TxPackets
	}
	before := cardFrames()
	const count = 100
	s.pings(s.hostNS, ownAddr, count, 1000)
	s.pings(s.cardNS, hostAddr, count, 1000)
	for _, side := range sides {
		if err := s.carried(side, 2*count); err != nil {
			t.Error(err)
		}
	}
	if n := cardFrames() - before; n >= count {
		t.Errorf("%d frames have passed the card, of those between a host and the I/O unit's machine", n)
	}
	s.pings(s.hostNS, lanAddr, count, 1000)
}

func TestNetnsClaim17NICConfiguration(t *testing.T) { inMemory(t, nicConfiguration) }
func TestRDMAClaim17NICConfiguration(t *testing.T)  { onSoftRoCE(t, nicConfiguration) }

// An I/O unit has a network card that connects it to another network. It receives the messages that
// configure the card on the control channel. The card's interface for a host gets the settings that
// the host's user makes on the netdevice.
func nicConfiguration(t *testing.T, on fabricOf) {
	s := newTestbed(t, on)
	card := func() netlink.Link {
		var found netlink.Link
		testenv.With(t, s.cardNS, func(h *netlink.Handle) error {
			links, err := h.LinkList()
			for _, l := range links {
				if l.Type() == "macvtap" {
					found = l
				}
			}
			return err
		})
		if found == nil {
			t.Fatal("the I/O unit has no interface on its card")
		}
		return found
	}
	configure := func(what string, c protocol.CfgType, done func() bool, args ...string) []byte {
		t.Helper()
		from := s.now()
		testenv.Run(t, s.hostNS, "ip", append([]string{"link", "set", "sn0"}, args...)...)
		var request protocol.CfgUtilRequest
		poll(t, func() error {
			for _, m := range of(s.arrived(unitSide), protocol.FuncCfgUtilRequest) {
				if m.at < from {
					continue
				}
				if ch := s.channel(unitSide, m.qpn); ch != 0 {
					t.Fatalf("%s: a request on channel %d", what, ch)
				}
				if q, err := protocol.DecodeCfgUtilRequest(m.data); err == nil && q.Type == c {
					request = q
				}
			}
			if request.Type != c || !done() {
				return fmt.Errorf("%s: the card's interface is %+v", what, card().Attrs())
			}
			return nil
		})
		poll(t, func() error {
			for _, m := range of(s.arrived(hostSide), protocol.FuncCfgUtilReply) {
				r, err := protocol.DecodeCfgUtilReply(m.data)
				if err == nil && m.at > from && r.Type == c && r.TransactionContext == request.TransactionContext &&
					r.Status == protocol.CfgOK {
					return nil
				}
			}
			return fmt.Errorf("%s: no reply to %+v", what, request)
		})
		return request.Data
	}
	const mac = "02:00:5e:99:00:01"
	if card().Attrs().HardwareAddr.String() == mac {
		t.Fatal("the card's interface has the address already")
	}
	data := configure("MAC address", protocol.CfgMAC, func() bool { return card().Attrs().HardwareAddr.String() == mac },
		"address", mac)
	if m, err := protocol.DecodeMAC(data); err != nil || m.String() != mac {
		t.Errorf("the message says %v, %v", m, err)
	}
	ping(t, s.lanNS, hostAddr, 10, 100)
	configure("down", protocol.CfgLinkState, func() bool { return card().Attrs().RawFlags&unix.IFF_UP == 0 }, "down")
	configure("up", protocol.CfgLinkState, func() bool { return card().Attrs().RawFlags&unix.IFF_UP != 0 }, "up")
	ping(t, s.lanNS, hostAddr, 10, 100)
}

func TestNetnsFlushAtTheHostsEnd(t *testing.T) { inMemory(t, flushAtTheHostsEnd) }
func TestRDMAFlushAtTheHostsEnd(t *testing.T)  { onSoftRoCE(t, flushAtTheHostsEnd) }

// A host that shuts down in an orderly way flushes the pools of both sides.
func flushAtTheHostsEnd(t *testing.T, on fabricOf) { flushWhenEnds(t, on, hostSide) }

func TestNetnsFlushAtTheUnitsEnd(t *testing.T) { inMemory(t, flushAtTheUnitsEnd) }
func TestRDMAFlushAtTheUnitsEnd(t *testing.T)  { onSoftRoCE(t, flushAtTheUnitsEnd) }

// An I/O unit that shuts down in an orderly way flushes the pools of both sides.
func flushAtTheUnitsEnd(t *testing.T, on fabricOf) { flushWhenEnds(t, on, unitSide) }

// flushWhenEnds ends one endpoint while the other one runs. It expects that a flush request named
// each pool of both endpoints, and that the memory of each pool was deregistered while the queue
// pairs of its owner were still in service.
func flushWhenEnds(t *testing.T, on fabricOf, ends string) {
	s := newTestbed(t, on)
	ping(t, s.hostNS, lanAddr, 20, 700)
	s.end[ends]()
	peer := other(ends)
	s.until(func() error {
		if n := len(s.pick(peer, closing)); n == 0 {
			return fmt.Errorf("the %s holds the session", peer)
		}
		return nil
	})
	flushed := map[uint32]bool{}
	for _, e := range of(s.posted(ends), protocol.FuncBufferPoolFlushRequest) {
		m, err := protocol.DecodeBufferPoolFlushRequest(e.data)
		if err != nil {
			t.Fatal(err)
		}
		for i := range m.Len() {
			flushed[m.Pool(i)] = true
		}
	}
	windows := s.unit.Status().Protection.Name == messaging.ProtectWindow
	for side, given := range map[string]uint32{ends: 0, peer: protocol.FlushGiveBack} {
		gone := s.pick(side, qpGone)[0]
		for _, l := range s.lent(side) {
			returned := func(e entry) bool { return e.what == deregistered && e.addr == l.Addr && e.at < gone.at }
			if side == peer && windows {
				// The peer deregisters its pools when their windows are invalid. The last
				// message that invalidates one is sent just before the bye.
				returned = func(e entry) bool { return e.send.Op == fabric.OpSendInv && e.send.RKey == l.RKey }
			}
			if !flushed[l.Ref|given] || !slices.ContainsFunc(s.pick("", deregistered, sendPosted), returned) {
				t.Errorf("pool %d of the %s was not flushed, or its memory not given back: %v", l.Ref, side, flushed)
			}
		}
	}
}

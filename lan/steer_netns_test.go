package lan_test

import (
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/tap/steer"
	"github.com/splitnic/splitnic/vnet"
)

// latency is the rule of these tests.
var latency = steer.Rule{Classes: steer.DefaultClasses(), Limit: 1518}

// udp returns a frame to dst with this type of service and source port, and with VLAN tags of these
// types.
func udp(dst net.HardwareAddr, tos byte, port int, tags ...uint16) []byte {
	f := append(make([]byte, vnet.HdrLen), dst...)
	f = append(f, 2, 0, 0, 0, 0, 99)
	for _, tpid := range tags {
		f = binary.BigEndian.AppendUint16(f, tpid)
		f = append(f, 0, 5)
	}
	f = append(f, 8, 0)
	ip := make([]byte, 100)
	ip[0], ip[1], ip[3], ip[8], ip[9] = 0x45, tos, 100, 64, 17
	copy(ip[12:], []byte{10, 8, 0, 1, 10, 8, 0, 2})
	binary.BigEndian.PutUint16(ip[20:], uint16(port))
	sum := uint32(0) // a bridge may check the header checksum
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))
	return append(f, ip...)
}

// arrived reads all queues until want frames made by udp have come, and returns the number of these
// frames for each queue.
func arrived(t *testing.T, p lan.Interface, want int) []int {
	t.Helper()
	slot := make([]byte, vnet.Headroom+vnet.MaxFrame+1)
	n := make([]int, len(p.Queues()))
	got := 0
	testenv.Eventually(t, func() bool {
		for i, q := range p.Queues() {
			for {
				f, err := testenv.ReadFrame(q, slot)
				if errors.Is(err, unix.EAGAIN) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if len(f) > vnet.HdrLen+12 && f[vnet.HdrLen+11] == 99 {
					n[i]++
					got++
				}
			}
		}
		return got >= want
	}, "%d frames", want)
	return n
}

// TestNetnsSteer sends marked and other frames to a host. It expects exactly the marked
// frames on the last queue.
func TestNetnsSteer(t *testing.T) {
	testenv.NeedTUN(t)
	const ef = 46 << 2
	for _, kind := range strings.Fields(kinds) {
		t.Run(kind, func(t *testing.T) {
			s := newTestbed(t)
			mac := net.HardwareAddr{2, 0, 0, 0, 1, 1}
			p := s.open(t, s.spec(t, kind), lan.Config{MAC: mac, Queues: 4, Offloads: vnet.AllOffloads, Latency: &latency})
			var marked, bulk [][]byte
			for i := range 32 {
				for _, tags := range [][]uint16{nil, {0x8100}, {0x88a8, 0x8100}} {
					marked = append(marked, udp(mac, ef, i, tags...))
					bulk = append(bulk, udp(mac, 0, i, tags...))
				}
				broadcast := udp(net.HardwareAddr{255, 255, 255, 255, 255, 255}, ef, i)
				marked = append(marked, broadcast)
			}
			both := func() {
				t.Helper()
				testenv.SendRaw(t, s.station, "eth0", marked...)
				if n := arrived(t, p, len(marked)); n[3] != len(marked) {
					t.Errorf("%d marked frames came to %v", len(marked), n)
				}
				testenv.SendRaw(t, s.station, "eth0", bulk...)
				if n := arrived(t, p, len(bulk)); n[3] != 0 || n[0] == 0 || n[1] == 0 || n[2] == 0 {
					t.Errorf("%d bulk frames came to %v", len(bulk), n)
				}
			}
			both()
			if kind == "tap" {
				return // setting the card down would only affect the bridge
			}
			// Sockets leave their fanout group when the card is set down.
			testenv.With(t, s.unit, func(h *netlink.Handle) error { return h.LinkSetDown(testenv.Link(t, s.unit, nic)) })
			testenv.Up(t, s.unit, nic)
			testenv.Eventually(t, func() bool {
				return testenv.Link(t, s.station, "eth0").Attrs().OperState == netlink.OperUp
			}, "the cable")
			both()
		})
	}
}

// TestNetnsSteerBeside sends the same from another port of the card. A fanout group of packet sockets
// gets these frames as outgoing ones, which begin elsewhere.
func TestNetnsSteerBeside(t *testing.T) {
	testenv.NeedTUN(t)
	const ef = 46 << 2
	for _, kind := range strings.Fields(kinds) {
		t.Run(kind, func(t *testing.T) {
			s := newTestbed(t)
			p := s.open(t, s.spec(t, kind), lan.Config{MAC: macA, Queues: 4, Offloads: vnet.AllOffloads, Latency: &latency})
			from := s.open(t, s.spec(t, kind), lan.Config{MAC: macB, Queues: 1, Offloads: vnet.AllOffloads})
			const each = 32
			for _, tags := range [][]uint16{nil, {0x8100}, {0x88a8, 0x8100}} {
				for i := range each {
					write(t, from, udp(macA, ef, i, tags...))
				}
				if n := arrived(t, p, each); n[3] != each {
					t.Errorf("%d marked frames with tags %#x came to %v", each, tags, n)
				}
				for i := range each {
					write(t, from, udp(macA, 0, i, tags...))
				}
				if n := arrived(t, p, each); n[3] != 0 || n[0] == 0 || n[1] == 0 || n[2] == 0 {
					t.Errorf("%d bulk frames with tags %#x came to %v", each, tags, n)
				}
			}
		})
	}
}

// TestNetnsSteerRefused opens a port whose only queue is the latency queue. It expects an error
// other than ErrUnavailable, and no netdevice to be left.
func TestNetnsSteerRefused(t *testing.T) {
	testenv.NeedTUN(t)
	s := newTestbed(t)
	for _, kind := range strings.Fields(kinds) {
		before := testenv.Links(t, s.unit)
		p, err := lan.Open(s.spec(t, kind), lan.Config{NetNS: s.unit, Queues: 1, Latency: &latency})
		if err == nil {
			p.Close()
			t.Errorf("%s: a latency queue that is the only one", kind)
		}
		if errors.Is(err, steer.ErrUnavailable) {
			t.Errorf("%s: not the kernel's fault: %v", kind, err)
		}
		if after := testenv.Links(t, s.unit); kind != "tap" && len(after) != len(before) {
			t.Errorf("%s: left %v of %v", kind, after, before)
		}
	}
}

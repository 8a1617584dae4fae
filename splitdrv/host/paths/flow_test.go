package paths

import (
	"encoding/binary"
	"testing"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// packet is a frame with a packet of an IP version from one host and port to another.
func packet(dst, src protocol.MAC, version int, from, to byte, ports [2]uint16, vlans ...uint16) []byte {
	f := frame(dst, src, 100, vlans...)
	at := vnet.MinFrame + vnet.TagLen*len(vlans)
	ip := f[at:]
	clear(ip)
	transport := ip[20:]
	if version == 4 {
		f[at-2], f[at-1] = 0x08, 0
		ip[0], ip[9], ip[15], ip[19] = 0x45, 17, from, to
	} else {
		f[at-2], f[at-1] = 0x86, 0xdd
		ip[0], ip[6], ip[23], ip[39] = 0x60, 6, from, to
		transport = ip[40:]
	}
	binary.BigEndian.PutUint16(transport, ports[0])
	binary.BigEndian.PutUint16(transport[2:], ports[1])
	return f
}

// TestFlowOf has both directions of a flow be one, and others be others.
func TestFlowOf(t *testing.T) {
	for _, version := range []int{4, 6} {
		for _, vlans := range [][]uint16{nil, {5}} {
			flows := make(map[uint8]int)
			for port := range uint16(1000) {
				there := flowOf(packet(peer, own, version, 1, 2, [2]uint16{port, 80}, vlans...))
				back := flowOf(packet(own, peer, version, 2, 1, [2]uint16{80, port}, vlans...))
				if there != back {
					t.Fatalf("IPv%d, port %d: %d and %d", version, port, there, back)
				}
				flows[there]++
			}
			if len(flows) < 200 {
				t.Errorf("IPv%d: 1000 flows are %d", version, len(flows))
			}
		}
	}
	fragment := packet(peer, own, 4, 1, 2, [2]uint16{1, 2})
	fragment[vnet.MinFrame+6] = 0x20
	other := packet(peer, own, 4, 1, 2, [2]uint16{3, 8})
	other[vnet.MinFrame+7] = 1
	if flowOf(fragment) != flowOf(other) {
		t.Error("fragments of a packet have ports")
	}
}

// TestFlowStaysInItsQueue has frames from a peer be put where those to it come from, also
// before frames go directly; and into a queue that is in use.
func TestFlowStaysInItsQueue(t *testing.T) {
	s, d := newSplit(t, 3, Config{})
	p, err := s.Open(Peer{MACs: []protocol.MAC{peer}, Own: []protocol.MAC{own}, MTU: 1500})
	if err != nil {
		t.Fatal(err)
	}
	var u []*sender
	for i := range d {
		u = append(u, newSender(s.Uplink()[i], 8))
	}
	for port := range uint16(20) {
		queue := int(port) % 3
		d[queue].send(packet(peer, own, 4, 1, 2, [2]uint16{port, 80}))
		if len(u[queue].drain(t)) != 1 {
			t.Fatal("a frame does not go through the I/O unit")
		}
		write(t, p.Port(), whole, packet(own, peer, 4, 2, 1, [2]uint16{80, port}))
		for i := range d {
			if got := len(d[i].received()); (got == 1) != (i == queue) {
				t.Fatalf("port %d: queue %d has %d frames", port, i, got)
			}
		}
		for used := 1; used < 3; used++ {
			s.SetQueues(used)
			write(t, p.Port(), whole, packet(own, peer, 4, 2, 1, [2]uint16{80, port}))
			got := 0
			for _, d := range d[:used] {
				got += len(d.received())
			}
			if got != 1 {
				t.Fatal("a frame is put into a queue that is not in use")
			}
		}
		s.SetQueues(3)
		u[0].drain(t)
	}
}

func FuzzFlowOf(f *testing.F) {
	f.Add(packet(peer, own, 4, 1, 2, [2]uint16{1, 2}))
	f.Add(packet(peer, own, 6, 1, 2, [2]uint16{1, 2}, 5))
	f.Fuzz(func(_ *testing.T, b []byte) {
		if len(b) >= vnet.MinFrame {
			flowOf(b)
		}
	})
}

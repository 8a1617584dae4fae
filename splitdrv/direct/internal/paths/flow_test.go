package paths

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// packet returns a frame with a packet of an IP version from one host and port to another.
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

// TestFlowOf expects both directions of a flow to have the same hash, and different flows to have
// different hashes.
func TestFlowOf(t *testing.T) {
	for _, version := range []int{4, 6} {
		for _, vlans := range [][]uint16{nil, {5}} {
			flows := make(map[flow]int)
			for port := range uint16(1000) {
				there := flowOf(packet(peer, own, version, 1, 2, [2]uint16{port, 80}, vlans...))
				back := flowOf(packet(own, peer, version, 2, 1, [2]uint16{80, port}, vlans...))
				if there != back {
					t.Fatalf("IPv%d, port %d: %d and %d", version, port, there, back)
				}
				flows[there]++
			}
			if len(flows) < 1000 {
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

// TestFlowStaysInItsQueue expects frames from a peer to be written to the queue from which frames
// of the same flow to the peer were read, also before frames go directly, and only to queues in
// use.
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

// TestFlowsOfPeers expects all frames of a flow from a peer in one queue, on whichever path and in
// whichever order they arrive, also after the direct path is closed.
func TestFlowsOfPeers(t *testing.T) {
	s, d := newSplit(t, 3, Config{})
	open := func() *Path {
		p, err := s.Open(Peer{MACs: []protocol.MAC{peer}, Own: []protocol.MAC{own}, MTU: 1500})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	// in returns the queue that has the only frame.
	in := func() int {
		t.Helper()
		queue := -1
		for i := range d {
			if n := len(d[i].received()); n > 1 || n == 1 && queue >= 0 {
				t.Fatal("a frame is there twice")
			} else if n == 1 {
				queue = i
			}
		}
		return queue
	}
	p := open()
	for port := range uint16(30) {
		answer := packet(own, peer, 4, 2, 1, [2]uint16{80, port})
		ports := []messaging.Port{p.Port(), s.Uplink()[0], s.Uplink()[1], s.Uplink()[2]}
		first := int(port) % len(ports)
		write(t, ports[first], whole, answer)
		want := in()
		if first > 0 && want != first-1 {
			t.Fatalf("port %d: the first frame is in queue %d", port, want)
		}
		// The kernel may have put frames to the peer into other queues before it knew the flow.
		to := newSender(s.Uplink()[port%3], 8)
		d[port%3].send(packet(peer, own, 4, 1, 2, [2]uint16{port, 80}))
		if len(to.drain(t)) != 1 {
			t.Fatal("a frame does not go through the I/O unit")
		}
		for i, by := range ports {
			for _, head := range []int{whole, vnet.MinFrame} {
				write(t, by, head, answer)
				if got := in(); got != want {
					t.Fatalf("port %d: queue %d instead of %d by path %d", port, got, want, i)
				}
			}
		}
		p.Close(nil)
		for i, by := range ports[1:] {
			write(t, by, whole, answer)
			if got := in(); got != want {
				t.Fatalf("port %d: queue %d instead of %d by channel %d after all paths", port, got, want, i)
			}
		}
		p = open()
	}
}

// TestFlowsWithoutPath expects that the queue of a flow is known if the flow began while no path
// was open.
func TestFlowsWithoutPath(t *testing.T) {
	s, d := newSplit(t, 3, Config{})
	peer := Peer{MACs: []protocol.MAC{peer}, Own: []protocol.MAC{own}, MTU: 1500}
	open := func() *Path {
		p, err := s.Open(peer)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	open().Close(nil)
	for port := range uint16(6) {
		queue := int(port) % 3
		if there := port < 3; there {
			d[queue].send(packet(peer.MACs[0], own, 4, 1, 2, [2]uint16{port, 80}))
			newSender(s.Uplink()[queue], 8).drain(t)
		} else {
			write(t, s.Uplink()[queue], whole, packet(own, peer.MACs[0], 4, 2, 1, [2]uint16{80, port}))
		}
		p := open()
		write(t, p.Port(), whole, packet(own, peer.MACs[0], 4, 2, 1, [2]uint16{80, port}))
		if len(d[queue].received()) == 0 {
			t.Errorf("port %d: the frame is not in queue %d", port, queue)
		}
		p.Close(nil)
	}
}

// TestFlowsForgotten expects the entry of a flow to change its queue only when the kernel may have
// forgotten the flow, and to be replaced by the entry of another flow only if that is a peer's.
func TestFlowsForgotten(t *testing.T) {
	f := flowQueues{began: time.Now()}
	frame := packet(peer, own, 4, 1, 2, [2]uint16{1, 2})
	placed := func(queues int, peer bool) int { return f.place(flowOf(frame), f.now(), 2, queues, peer) }
	f.learn(frame, 0, true)
	if f.learn(frame, 1, true); placed(3, true) != 0 {
		t.Error("the flow has moved at once")
	}
	f.began = f.began.Add(-5 * time.Second)
	if f.learn(frame, 1, true); placed(3, true) != 1 {
		t.Error("the flow has not moved to where the kernel put it")
	}
	f.began = f.began.Add(-5 * time.Second)
	if placed(3, true) != 1 {
		t.Error("an old entry is not used")
	}
	if f.learn(frame, 0, true); placed(3, true) != 1 {
		t.Error("a frame that was put into the queue has not kept the entry")
	}
	if placed(1, true) != 2 {
		t.Error("a queue that is not in use any more")
	}

	other := neighbour(frame)
	before := f.at[flowOf(frame).index()].Load()
	f.learn(other, 0, false)
	if f.place(flowOf(other), f.now(), 0, 3, false); f.at[flowOf(frame).index()].Load() != before {
		t.Error("a flow that is of no peer has taken the place of another one")
	}
	if f.learn(other, 0, true); placed(3, false) != 2 {
		t.Error("a peer's flow has not taken the place")
	}
}

// neighbour returns a frame to the peer of another flow, which has the same index.
func neighbour(frame []byte) []byte {
	other := frame
	for port := uint16(3); flowOf(other) == flowOf(frame) || flowOf(other).index() != flowOf(frame).index(); port++ {
		other = packet(peer, own, 4, 1, 2, [2]uint16{port, 2})
	}
	return other
}

// TestPeersFlowsFirst expects a frame from a peer to replace the entry of another flow, also if the
// frame arrives through the I/O unit.
func TestPeersFlowsFirst(t *testing.T) {
	s, d := newSplit(t, 3, Config{})
	p, err := s.Open(Peer{MACs: []protocol.MAC{peer}, Own: []protocol.MAC{own}, MTU: 1500})
	if err != nil {
		t.Fatal(err)
	}
	answer := packet(own, peer, 4, 2, 1, [2]uint16{2, 1})
	otherwise := flowOf(answer).among(3)
	queue := (otherwise + 1) % 3
	s.flows.learn(neighbour(answer), otherwise, true)
	write(t, s.Uplink()[queue], whole, answer)
	write(t, p.Port(), whole, answer)
	if n := len(d[queue].received()); n != 2 {
		t.Errorf("%d of 2 frames are in the queue of the first", n)
	}
}

// ringed is a queue with a separate descriptor for room, like that of a vhost-user port.
type ringed struct{ *device }

func (r ringed) WriteFD() int         { return r.FD() }
func (r ringed) RoomIsReadable() bool { return true }

// TestFullQueueIsWaitedFor has queues with separate descriptors for room. It expects frames only in
// the queue whose descriptor their writer waits for.
func TestFullQueueIsWaitedFor(t *testing.T) {
	var devices []*device
	var ports []messaging.Port
	for range 3 {
		d := newDevice(t)
		devices, ports = append(devices, d), append(ports, ringed{d})
	}
	s, err := New(ports, Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	p, err := s.Open(Peer{MACs: []protocol.MAC{peer}, Own: []protocol.MAC{own}, MTU: 1500})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close(nil) })
	by := append([]messaging.Port{p.Port()}, s.Uplink()...)
	for port := range uint16(12) {
		for i, w := range by {
			write(t, w, whole, packet(own, peer, 4, 2, 1, [2]uint16{80, port}))
			fd := w.(messaging.ReadablePort).WriteFD()
			for q, d := range devices {
				if n := len(d.received()); (n == 1) != (d.FD() == fd) {
					t.Fatalf("port %d: path %d: %d frames are in queue %d", port, i, n, q)
				}
			}
		}
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

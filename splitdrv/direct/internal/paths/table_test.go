package paths

import (
	"math"
	"testing"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

var (
	own    = protocol.MAC{2, 0, 0, 0, 0, 1}
	second = protocol.MAC{2, 0, 0, 0, 1, 1} // another address of this host
	peer   = protocol.MAC{2, 0, 0, 0, 0, 2}
	behind = protocol.MAC{2, 0, 0, 0, 1, 2} // another address of the peer
	third  = protocol.MAC{2, 0, 0, 0, 0, 3}
	all    = protocol.MAC{255, 255, 255, 255, 255, 255}
)

// frame returns a frame of n bytes after an empty header, with tags of these VLANs.
func frame(dst, src protocol.MAC, n int, vlans ...uint16) []byte {
	f := make([]byte, vnet.HdrLen, vnet.HdrLen+n)
	f = append(append(f, dst[:]...), src[:]...)
	for _, v := range vlans {
		f = append(f, 0x81, 0, byte(v>>8), byte(v))
	}
	f = append(f, 0x88, 0xb6)
	for len(f) < vnet.HdrLen+n {
		f = append(f, byte(len(f)))
	}
	return f
}

// edited changes one byte of a frame and returns the frame.
func edited(f []byte, at int, to byte) []byte {
	f[at] = to
	return f
}

func typed(proto uint16) []byte {
	return edited(edited(frame(peer, own, 60), typeAt, byte(proto>>8)), typeAt+1, byte(proto))
}

func vlans(t testing.TB, list string) protocol.VLANSet {
	t.Helper()
	v, err := protocol.ParseVLANs(list)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func pathFor(t testing.TB, s state, macs ...protocol.MAC) *route {
	t.Helper()
	p := &route{state: s, peer: Peer{MACs: macs, VLANs: vlans(t, "5,10-12"), MTU: 1500},
		own: protocol.NewMACSet([]protocol.MAC{second, own}), theirs: protocol.NewMACSet(macs), reader: &reader{}}
	return p
}

// TestRoute tests the choice of the path for a frame.
func TestRoute(t *testing.T) {
	p, q, early := pathFor(t, direct, behind, peer), pathFor(t, held, third), pathFor(t, opening, protocol.MAC{2, 9})
	table := newTable([]*route{early, q, p, pathFor(t, closed, protocol.MAC{2, 8})})
	for _, tc := range []struct {
		name  string
		frame []byte
		want  *route
	}{
		{"to the peer", frame(peer, own, 60), p},
		{"to another address of the peer's, from another one", frame(behind, second, 60), p},
		{"to a path that holds frames", frame(third, own, 60), q},
		{"to a path that is not entered", frame(protocol.MAC{2, 9}, own, 60), early},
		{"to a path that is closed", frame(protocol.MAC{2, 8}, own, 60), nil},
		{"to nobody", frame(protocol.MAC{2, 7}, own, 60), nil},
		{"to all", frame(all, own, 60), nil},
		{"to a group", frame(protocol.MAC{3, 0, 0, 0, 0, 2}, own, 60), nil},
		{"from an address the peer was not told of", frame(peer, third, 60), nil},
		{"in a VLAN", frame(peer, own, 60, 11), p},
		{"with a priority", frame(peer, own, 60, 0xe000), p},
		{"in a VLAN, with a priority", frame(peer, own, 60, 0xe005), p},
		{"in another VLAN", frame(peer, own, 60, 6), nil},
		{"in a VLAN inside another", frame(peer, own, 60, 11, 6), nil},
		{"in a VLAN inside itself", frame(peer, own, 60, 11, 11), nil},
		{"in a VLAN behind a priority", frame(peer, own, 60, 0, 6), nil},
		{"with an old tag", typed(0x9100), nil},
		{"with a tag of a backbone", typed(0x88e7), nil},
		{"link control", typed(0x8809), nil},
		{"link control in a VLAN", edited(edited(frame(peer, own, 60, 11), typeAt+4, 0x88), typeAt+5, 0xcc), nil},
		{"ends in its tag", frame(peer, own, 14, 11)[:vnet.MinFrame+2], nil},
		{"the shortest", frame(peer, own, 14), p},
		{"no frame", frame(peer, own, 14)[:vnet.MinFrame-1], nil},
		{"nothing", nil, nil},
	} {
		if got := table.find(tc.frame); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

func TestNoTableWithoutPath(t *testing.T) {
	if newTable(nil) != nil || newTable([]*route{pathFor(t, closed, third)}) != nil {
		t.Error("frames are looked up although no path is open")
	}
}

// TestStateOfFrames tests for each state of a path whether frames are routed to it, and whether
// they are held.
func TestStateOfFrames(t *testing.T) {
	for s, want := range map[state][2]bool{
		opening: {false, false}, held: {true, true}, spilled: {false, false}, direct: {true, false}, leaving: {true, true},
		closed: {false, false},
	} {
		if s.routes() != want[0] || s.holds() != want[1] {
			t.Errorf("state %d: routes %v, holds %v", s, s.routes(), s.holds())
		}
	}
}

// TestStates tests every event in every state.
func TestStates(t *testing.T) {
	for s, want := range map[state][5]state{ // enter, confirm, leave, overflow, end
		opening: {held, opening, opening, opening, closed},
		held:    {held, direct, spilled, spilled, closed},
		spilled: {spilled, spilled, spilled, spilled, closed},
		direct:  {direct, direct, leaving, direct, closed},
		leaving: {leaving, leaving, leaving, leaving, closed},
		closed:  {closed, closed, closed, closed, closed},
	} {
		for e := range want {
			if got := s.after(event(e)); got != want[e] {
				t.Errorf("event %d in state %d: %d, want %d", e, s, got, want[e])
			}
		}
	}
}

// TestJudge tests the verdict about frames from the peer.
func TestJudge(t *testing.T) {
	p := pathFor(t, direct, peer, behind)
	gso := frame(own, peer, 1514)
	gso[1] = vnet.GSOTCPv4
	for _, tc := range []struct {
		name  string
		frame []byte
		want  verdict
	}{
		{"from the peer", frame(own, peer, 60), pass},
		{"from another address of the peer's, to another of ours", frame(second, behind, 60), pass},
		{"from somebody else", frame(own, third, 60), source},
		{"from this host", frame(own, own, 60), source},
		{"from all", frame(own, all, 60), source},
		{"to somebody else", frame(third, peer, 60), destination},
		{"to the peer", frame(peer, peer, 60), destination},
		{"to all", frame(all, peer, 60), destination},
		{"to a group", frame(protocol.MAC{3, 0, 0, 0, 0, 1}, peer, 60), destination},
		{"in a VLAN", frame(own, peer, 60, 12), pass},
		{"in another VLAN", frame(own, peer, 60, 13), vlan},
		{"in a VLAN inside another", frame(own, peer, 60, 12, 13), vlan},
		{"link control", edited(edited(frame(own, peer, 60), typeAt, 0x88), typeAt+1, 8), vlan},
		{"as long as can be", frame(own, peer, 1518), pass},
		{"too long", frame(own, peer, 1519), malformed},
		{"a super-frame that is none", gso, malformed},
		{"with unknown flags", edited(frame(own, peer, 60), 0, 0x40), malformed},
		{"ends in its tag", frame(own, peer, 14, 12)[:vnet.MinFrame+2], vlan},
		{"no frame", frame(own, peer, 14)[:vnet.MinFrame-1], malformed},
		{"nothing", nil, malformed},
	} {
		if got := p.judge(tc.frame, len(tc.frame)); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

// TestArrivals delivers markers of all queues, repeated ones, and ones of sessions with fewer
// queues. It expects one report, when all have arrived.
func TestArrivals(t *testing.T) {
	mark := func(queue, queues int) protocol.Marker {
		return protocol.Marker{Queue: uint16(queue), Queues: uint16(queues)}
	}
	var a arrivals
	for own := range 3 {
		for of := range 70 {
			if a.saw(mark(of, 70), own, 3) != (own == 2 && of == 69) {
				t.Fatalf("queue %d through %d", of, own)
			}
			if a.saw(mark(0, 70), 0, 3) {
				t.Fatal("told again")
			}
		}
	}
	// The next sessions of the peer and of this host have fewer queues.
	a = arrivals{}
	if a.saw(mark(0, 2), 0, 2) || a.saw(mark(0, 1), 0, 2) || a.saw(mark(0, 1), 5, 2) {
		t.Error("told too early")
	}
	told := 0
	a.look(2, func() { told++ })
	a.look(1, func() { told++ })
	a.look(1, func() { told++ })
	if told != 1 {
		t.Errorf("told %d times", told)
	}
	if new(arrivals).complete(0) {
		t.Error("told before there was any marker")
	}
}

// TestMoving tests when the right to read moves to another reader.
func TestMoving(t *testing.T) {
	r := &reader{}
	to, other := pathFor(t, direct, peer).reader, pathFor(t, direct, third).reader
	to.wants.Store(true)
	to.flows.Store(true)
	reads := func(m *moving, n int) bool {
		for range n - 1 {
			if m.saw(to, r) {
				return false // too early
			}
		}
		return m.saw(to, r)
	}
	var m moving
	if !reads(&m, movesAfter) {
		t.Error("the right does not move")
	}
	for name, between := range map[string]*reader{"its own": r, "mixed": nil, "another's": other} {
		m = moving{}
		reads(&m, movesAfter-1)
		if m.saw(between, r); m.saw(to, r) {
			t.Errorf("the right moves in spite of %s frames", name)
		}
	}
	to.slow.Store(2)
	to.until.Store(math.MaxInt64)
	if m = (moving{}); !reads(&m, movesAfter<<2) {
		t.Error("the right does not move to a slow one after all, or too early")
	}
	to.slow.Store(0)
	to.wants.Store(false)
	if m = (moving{}); reads(&m, 100) {
		t.Error("the right moves to one who takes no frames")
	}
	to.wants.Store(true)
	to.flows.Store(false)
	if m = (moving{}); reads(&m, 100) {
		t.Error("the right moves to one who must not")
	}
}

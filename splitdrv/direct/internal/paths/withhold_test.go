package paths

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// The tests in this file have a peer that withholds something: its confirmation of the markers,
// its part of the end, or credits. However long it does so, and however full its ring is, each
// frame to another host has to be read.

// sized returns frame n of a stream of frames of the same size.
func sized(dst protocol.MAC, size int, n uint32) []byte {
	f := frame(dst, own, size)
	binary.BigEndian.PutUint32(f[vnet.MinFrame:], n)
	return f
}

// entered opens a path, and sends its markers, which the peer does not confirm.
func entered(t testing.TB, s *Split, overflowed func()) *Path {
	t.Helper()
	p, err := s.Open(Peer{MACs: []protocol.MAC{peer}, Own: []protocol.MAC{own}, MTU: 1500,
		Out: noncesOf(1), In: noncesOf(3), Overflowed: overflowed})
	if err != nil {
		t.Fatal(err)
	}
	p.Enter()
	return p
}

// TestMarkersNotConfirmed has a peer confirm no markers. It expects all frames to other hosts to
// be read while more and more frames to the peer wait, the end of the path when its ring is full,
// and all frames to the peer, in order, through the I/O unit.
func TestMarkersNotConfirmed(t *testing.T) {
	const size, queues = 60000, 2
	s, d := newSplit(t, queues, Config{Ring: minRing})
	overflowed := 0
	p := entered(t, s, func() { overflowed++ })
	u := []*sender{uplinkOf(t, s, 0), uplinkOf(t, s, 1)}
	var next, waited uint32
	for n := uint32(0); n < 2*holds*minRing/size; n++ {
		q := n % queues
		away := sized(third, 100, n)
		d[q].send(sized(peer, size, n/queues), away)
		others := 0
		for _, f := range u[q].drain(t) {
			if slices.Equal(f, away) {
				others++
				continue
			}
			if q != 0 {
				continue // each queue has its own order, and one of them is enough
			}
			if number := binary.BigEndian.Uint32(f[vnet.MinFrame:]); number != next {
				t.Fatalf("frame %d to the peer is read, and not %d", number, next)
			}
			next++
		}
		if others != 1 || d[q].waiting() > 0 {
			t.Fatalf("after %d frames to the peer %d frames to another host are read, and %d wait in the netdevice", n, others,
				d[q].waiting())
		}
		if overflowed == 0 {
			waited = n + 1
		}
	}
	if next == 0 || overflowed != 1 || p.state != spilled {
		t.Errorf("%d frames have reached the peer, given up %d times, state %d", next, overflowed, p.state)
	}
	if most := uint32(holds * minRing / size); waited < most/2 || waited > most {
		t.Errorf("it was given up when %d frames waited", waited)
	}
	p.Confirm() // too late
	d[0].send(sized(peer, 100, next))
	if got := u[0].drain(t); len(got) != 1 {
		t.Errorf("after a late confirmation %d frames are read for the I/O unit", len(got))
	}
	p.Leave()
	p.Close(nil)
	if c := p.Counts(); c.Full != 0 || c.Held != 0 || c.OutFrames != 0 || s.Counts().UplinkFull != 0 {
		t.Errorf("%+v, %+v", c, s.Counts())
	}
	if left := s.spare.Load(); left != reserve*minRing {
		t.Errorf("%d bytes are not given back", reserve*minRing-left)
	}
}

// TestLeftBeforeConfirmed leaves a path whose frames wait for the markers. It expects them to use
// the path through the I/O unit at once, before the peer has ended its side.
func TestLeftBeforeConfirmed(t *testing.T) {
	s, d := newSplit(t, 1, Config{})
	p := entered(t, s, func() { t.Error("the ring is not full") })
	u := uplinkOf(t, s, 0)
	first, second := sized(peer, 100, 0), sized(peer, 100, 1)
	d[0].send(first)
	expect(t, "the I/O unit", u)
	p.Leave()
	d[0].send(second)
	expect(t, "the I/O unit", u, first, second)
}

// TestManyWait has more paths whose frames wait than there is memory for. Paths get their usual
// ring in any case, and each is given up when there is no memory to enlarge it.
func TestManyWait(t *testing.T) {
	const size = 60000
	s, d := newSplit(t, 1, Config{Ring: minRing})
	var peers []protocol.MAC
	overflowed := 0
	for i := range byte(2 * reserve / holds) {
		m := protocol.MAC{2, 9, 0, 0, 0, i}
		peers = append(peers, m)
		p, err := s.Open(Peer{MACs: []protocol.MAC{m}, Own: []protocol.MAC{own}, MTU: 1500, Out: noncesOf(2 * i),
			Overflowed: func() { overflowed++ }})
		if err != nil {
			t.Fatal(err)
		}
		p.Enter()
	}
	u := uplinkOf(t, s, 0)
	for n := range uint32(holds * minRing / size) {
		for _, m := range peers {
			d[0].send(sized(m, size, n), sized(third, 100, n))
		}
		u.drain(t)
		if d[0].waiting() > 0 {
			t.Fatalf("%d frames wait in the netdevice", d[0].waiting())
		}
		if s.spare.Load() < 0 {
			t.Fatal("there is less memory than none")
		}
	}
	if overflowed != len(peers) || s.spare.Load() != reserve*minRing {
		t.Errorf("%d of %d paths are given up, and %d bytes are left", overflowed, len(peers), s.spare.Load())
	}
}

// TestPeerEndsNothing leaves a path whose peer does not end its side. It expects all frames to
// other hosts to be read while the ring is full. Frames to the peer for which there is no room
// are dropped and counted; those that wait go through the I/O unit in the end.
func TestPeerEndsNothing(t *testing.T) {
	const size, frames = 60000, 2 * holds * minRing / 60000
	s, d := newSplit(t, 1, Config{Ring: minRing})
	p, direct := opened(t, s, peer)
	u := uplinkOf(t, s, 0)
	direct.drain(t)
	p.Leave()
	for n := range uint32(frames) {
		away := sized(third, 100, n)
		d[0].send(sized(peer, size, n), away)
		expect(t, "the I/O unit", u, away)
	}
	c := p.Counts()
	if most := uint64(holds * minRing / size); c.Held < most/2 || c.Held > most || c.Held+c.Full != frames {
		t.Errorf("%d frames wait, %d are dropped, of %d", c.Held, c.Full, frames)
	}
	p.Close(nil)
	for i, f := range u.drain(t) {
		if number := binary.BigEndian.Uint32(f[vnet.MinFrame:]); number != uint32(i) {
			t.Fatalf("frame %d is read, and not %d", number, i)
		}
	}
}

// TestRoomAfterConfirm confirms a path in the middle of a burst. It expects room for the frames
// that come before the sender has caught up.
func TestRoomAfterConfirm(t *testing.T) {
	const size = 60000
	s, d := newSplit(t, 1, Config{Ring: minRing})
	p := entered(t, s, func() { t.Error("the ring is full") })
	u := uplinkOf(t, s, 0)
	n := uint32(0)
	for ; n < 2*minRing/size; n++ { // now the enlarged ring is full
		d[0].send(sized(peer, size, n))
		expect(t, "the I/O unit", u)
	}
	p.Confirm()
	d[0].send(sized(peer, size, n))
	expect(t, "the I/O unit", u)
	if got := newSender(p.Port(), 8).drain(t); len(got) != int(n)+1 || p.Counts().Full != 0 {
		t.Errorf("%d frames of %d, %d dropped", len(got), n+1, p.Counts().Full)
	}
}

// ages makes the time since the reader of a queue has first lacked something longer.
func (q *queue) ages(by time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.pace.since.IsZero() {
		q.pace.since = q.pace.since.Add(-by)
	}
}

// TestPeerTrickles has a peer return so few credits that its sender reads a frame now and then,
// always within the grace time. It expects the right to read to move to another reader, and not
// soon back.
func TestPeerTrickles(t *testing.T) {
	for _, tt := range []struct {
		name   string
		ring   bool // the frames that wait are in the path's ring, not in the netdevice
		credit int  // frames for each time that the sender comes back
		moves  bool
	}{
		{"a frame each time", false, 1, true},
		{"a frame of its ring each time", true, 1, true},
		{"enough", false, leastFrames / 4, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, d := newSplit(t, 1, Config{})
			p, _ := opened(t, s, peer)
			u, q := uplinkOf(t, s, 0), s.queues[0]
			direct := newSender(p.Port(), leastFrames)
			direct.drain(t)
			to, away := frame(peer, own, 100), frame(third, own, 100)
			if tt.ring {
				for range 5 * leastFrames {
					p.reader.put(to, 0)
				}
			}
			q.mu.Lock()
			q.give(p.reader)
			q.mu.Unlock()
			for range 5 * leastFrames {
				d[0].send(to)
			}
			d[0].send(away)
			for range 8 {
				if got := direct.read(t, tt.credit); s.reads(0) == p.reader && len(got) != tt.credit {
					t.Fatalf("%d frames of %d", len(got), tt.credit)
				}
				q.ages(patience / 4)
				release(direct)
				if !tt.ring && s.reads(0) != p.reader {
					break
				}
			}
			if moved := s.reads(0) == q.uplink; moved != tt.moves {
				t.Fatalf("the right has moved: %t", moved)
			}
			if !tt.moves {
				return
			}
			p.reader.until.Store(time.Now().Add(time.Hour).UnixNano()) // a slow machine does not forgive it earlier
			var others [][]byte
			for d[0].waiting() > 0 {
				others = append(others, u.drain(t)...)
			}
			if len(others) != 1 || !slices.Equal(others[0], away) {
				t.Fatalf("%d frames to another host are read", len(others))
			}
			direct.drain(t)
			for range movesAfter<<slowest - 2 {
				if d[0].send(to); s.reads(0) != q.uplink {
					t.Fatal("the right is soon back")
				}
				u.drain(t)
				direct.drain(t)
			}
		})
	}
}

// TestPace tests what counts as a reader that keeps others waiting.
func TestPace(t *testing.T) {
	some := func(n, size int) []vnet.ReadOp {
		ops := make([]vnet.ReadOp, n)
		for i := range ops {
			ops[i].Frame = make([]byte, size)
		}
		return ops
	}
	began := time.Unix(1000, 0)
	for _, tt := range []struct {
		name string
		ops  []vnet.ReadOp
		dry  bool
		took time.Duration
		slow bool
	}{
		{"nothing", nil, false, patience, true},
		{"nothing yet", nil, false, patience - 1, false},
		{"few frames", some(leastFrames-1, 100), false, patience, true},
		{"frames", some(leastFrames, 100), false, patience, false},
		{"few bytes", some(5, (leastBytes-1)/5), false, patience, true},
		{"bytes", some(5, leastBytes/5), false, patience, false},
		{"all there is", some(1, 100), true, patience, false},
	} {
		var p pace
		p.read(some(2*leastFrames, 100), false) // before it lacked anything
		if p.lacks(began) {
			t.Errorf("%s: slow at once", tt.name)
		}
		p.read(tt.ops, tt.dry)
		if got := p.lacks(began.Add(tt.took)); got != tt.slow {
			t.Errorf("%s: slow %t", tt.name, got)
		}
		if tt.took == patience && p.lacks(began.Add(tt.took+patience-1)) {
			t.Errorf("%s: the next time is too short", tt.name)
		}
	}
}

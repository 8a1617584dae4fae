package paths

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// opened opens a path and confirms it, so that frames go directly.
func opened(t testing.TB, s *Split, macs ...protocol.MAC) (*Path, *sender) {
	t.Helper()
	p, err := s.Open(Peer{MACs: macs, Own: []protocol.MAC{own}, MTU: 1500, VLANs: vlans(t, "5"),
		Out: Nonces{Marker: [16]byte{1}}, In: Nonces{Marker: [16]byte{2}}})
	if err != nil {
		t.Fatal(err)
	}
	p.Enter()
	p.Confirm()
	return p, newSender(p.Port(), 8)
}

// uplinkOf returns the sender of a queue of the path through the I/O unit. The sender has read the
// markers.
func uplinkOf(t testing.TB, s *Split, queue int) *sender {
	t.Helper()
	u := newSender(s.Uplink()[queue], 8)
	for _, f := range u.drain(t) {
		if !protocol.IsMarker(f) {
			t.Fatal("a frame has come")
		}
	}
	return u
}

func release(s *sender) { s.port.(messaging.SharedPort).Release() }

// graceEnds ends the grace time of a queue whose reader has not come back.
func (q *queue) graceEnds() {
	q.graceOver() // may end the grace time of an earlier release
	q.graceOver()
}

// reads returns the reader with the right to read a queue.
func (s *Split) reads(queue int) *reader { return s.queues[queue].reader.Load() }

func expect(t testing.TB, who string, s *sender, want ...[]byte) {
	t.Helper()
	if got := s.drain(t); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%s has read %d frames, and not %d: %x", who, len(got), len(want), got)
	}
}

// TestWithoutPaths expects the path through the I/O unit to behave like the netdevice itself.
func TestWithoutPaths(t *testing.T) {
	s, d := newSplit(t, 2, Config{})
	u := newSender(s.Uplink()[1], 8)
	if u.read(t, 8) != nil || readable(t, u.port.FD()) {
		t.Error("there are frames in an empty queue")
	}
	f := frame(peer, own, 100)
	d[1].send(f, f)
	if !readable(t, u.port.FD()) {
		t.Error("the sender is not woken")
	}
	expect(t, "the I/O unit", u, f, f)
	release(u)
	if s.queues[1].armed {
		t.Error("a queue that nobody else reads is left to others")
	}
	d[1].fail(unix.EBADFD)
	ops := u.ops[:1]
	if n := u.port.ReadFrames(ops); n != 1 || !errors.Is(ops[0].Err, unix.EBADFD) {
		t.Errorf("the end of the netdevice: %v", ops[0].Err)
	}
	w := []vnet.WriteOp{{Head: f}}
	if n := u.port.WriteFrames(w); n != 1 || len(d[1].received()) != 1 {
		t.Error("a frame from the I/O unit is not written")
	}
}

// TestRightMoves expects the right to read to move to a direct path when a stream of frames is for
// this path, and back when a stream is not for it.
func TestRightMoves(t *testing.T) {
	s, d := newSplit(t, 1, Config{})
	p, direct := opened(t, s, peer)
	u := uplinkOf(t, s, 0)
	to, away := frame(peer, own, 100), frame(third, own, 100)
	if direct.read(t, 8) != nil { // now the path wants the right
		t.Error("there are frames")
	}
	for i := range movesAfter {
		if s.reads(0) != s.queues[0].uplink {
			t.Fatalf("the right has moved after %d reads", i)
		}
		if readable(t, direct.port.FD()) {
			t.Fatal("the sender of the direct path is woken for nothing")
		}
		d[0].send(to)
		if readable(t, direct.port.FD()) {
			t.Fatal("it is woken by a queue that it has no right to read")
		}
		expect(t, "the I/O unit", u)
		if !readable(t, direct.port.FD()) {
			t.Fatal("it is not woken")
		}
		expect(t, "the direct path", direct, to)
	}
	if s.reads(0) != p.reader {
		t.Fatal("the right has not moved")
	}
	u.drain(t)
	d[0].send(to, to)
	if readable(t, u.port.FD()) || !readable(t, direct.port.FD()) {
		t.Error("the wrong one is woken")
	}
	if u.read(t, 8) != nil {
		t.Error("somebody without the right has read")
	}
	expect(t, "the direct path", direct, to, to)
	for range movesAfter {
		d[0].send(away, to) // frames for both readers do not move the right
		expect(t, "the direct path", direct, to)
		expect(t, "the I/O unit", u, away)
	}
	if s.reads(0) != p.reader {
		t.Error("the right moves for frames of several")
	}
	for range movesAfter {
		d[0].send(away)
		expect(t, "the direct path", direct)
		expect(t, "the I/O unit", u, away)
	}
	if s.reads(0) != s.queues[0].uplink {
		t.Error("the right has not come back")
	}
	if c := p.Counts(); c.OutFrames != 2+2*movesAfter || c.OutBytes != 100*c.OutFrames || c.Full != 0 {
		t.Errorf("%+v", c)
	}
}

// TestReleaseGivesRight has each of two readers stop reading, and expects the other one to get the
// right and to read for it.
func TestReleaseGivesRight(t *testing.T) {
	s, d := newSplit(t, 1, Config{})
	p, direct := opened(t, s, peer)
	u := uplinkOf(t, s, 0)
	q := s.queues[0]
	direct.drain(t)
	to, away := frame(peer, own, 100), frame(third, own, 100)

	release(u)
	if !q.armed {
		t.Error("nobody looks whether the reader comes back")
	}
	u.drain(t) // back within the grace time
	if q.graceOver(); s.reads(0) != q.uplink {
		t.Error("the right has gone although its reader is back")
	}
	release(u)
	u.drain(t)
	release(u)
	if q.graceOver(); s.reads(0) != q.uplink || !q.armed {
		t.Error("the right has gone although its reader was back")
	}
	if q.graceOver(); s.reads(0) != p.reader {
		t.Fatal("the right has not gone to the direct path")
	}
	d[0].send(away, to, away)
	if !readable(t, direct.port.FD()) {
		t.Error("the new reader is not woken")
	}
	expect(t, "the direct path", direct, to)

	release(direct) // now no reader reads
	if q.graceEnds(); s.reads(0) != p.reader || !q.free.Load() {
		t.Error("the right has gone to one that does not want it")
	}
	d[0].send(to, away)
	expect(t, "the I/O unit", u, away, away, away) // first from the ring, then from the netdevice
	if s.reads(0) != q.uplink || q.free.Load() {
		t.Error("who comes first has not got the right")
	}
	expect(t, "the direct path", direct, to)
	if s.Counts().UplinkFull > 0 || p.Counts().Full > 0 {
		t.Error("frames were dropped")
	}
}

// TestRightOfFullNetdevice gives the right to read to each reader in turn while the netdevice is
// full. It expects an edge-triggered epoll(7) waiter, like Go's runtime, to be woken for the frames
// that are already there.
func TestRightOfFullNetdevice(t *testing.T) {
	s, d := newSplit(t, 1, Config{})
	_, direct := opened(t, s, peer)
	u := uplinkOf(t, s, 0)
	changes := func(from *sender) (changed func() bool) {
		ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(ep) })
		fd := from.port.FD()
		if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET,
			Fd: int32(fd)}); err != nil {
			t.Fatal(err)
		}
		return func() bool {
			n, err := unix.EpollWait(ep, make([]unix.EpollEvent, 1), 0)
			if err != nil {
				t.Fatal(err)
			}
			return n > 0
		}
	}
	uplink, path := changes(u), changes(direct)
	to := frame(peer, own, 100)
	direct.read(t, 8) // now the path wants the right
	for range 3 {
		for range movesAfter << slowest {
			d[0].send(to)
			if s.reads(0) != s.queues[0].uplink {
				break
			}
			if !uplink() {
				t.Fatal("the path through the I/O unit is not told of a frame")
			}
			expect(t, "the I/O unit", u)
			direct.drain(t)
		}
		if s.reads(0) == s.queues[0].uplink {
			t.Fatal("the right has not moved")
		}
		if !path() {
			t.Fatal("the direct path is not told of a frame")
		}
		direct.drain(t)
		// Now the peer is slow, and the netdevice is full, so that no further frame arrives.
		d[0].send(to)
		release(direct)
		s.queues[0].graceEnds()
		if s.reads(0) != s.queues[0].uplink || !uplink() {
			t.Fatal("the path through the I/O unit is not told of the frame that was there")
		}
		expect(t, "the I/O unit", u)
		direct.drain(t)
	}
}

// TestSlowPeer expects the right to move later each time to a path that keeps the other readers
// waiting, and sooner again when the path is not slow any more.
func TestSlowPeer(t *testing.T) {
	s, d := newSplit(t, 1, Config{})
	p, direct := opened(t, s, peer)
	u := uplinkOf(t, s, 0)
	q := s.queues[0]
	moves := func() (reads int) {
		direct.drain(t)
		for ; s.reads(0) != p.reader; reads++ {
			d[0].send(frame(peer, own, 100))
			u.drain(t)
		}
		return reads
	}
	for i := range 2 * slowest {
		if reads, want := moves(), movesAfter<<min(i, slowest); reads != want {
			t.Fatalf("the right has moved after %d reads, and not %d", reads, want)
		}
		release(direct)
		before := time.Now()
		q.graceEnds()
		if s.reads(0) != q.uplink {
			t.Fatal("the right has not come back")
		}
		if d := time.Unix(0, p.reader.until.Load()).Sub(before); d < grace<<min(i+1, slowest) {
			t.Fatalf("what it did is forgiven after %v", d)
		}
		p.reader.until.Store(math.MaxInt64)
	}
	p.reader.until.Store(0)
	if reads := moves(); reads != movesAfter {
		t.Fatalf("long after it was slow the right has moved after %d reads, and not %d", reads, movesAfter)
	}
	q.give(p.reader)
	for i := range slowest {
		release(direct)
		direct.drain(t)
		if q.graceOver(); int(p.reader.slow.Load()) != slowest-1-i {
			t.Fatal("a path that is back in time is as slow as before")
		}
	}
}

// TestRightEndsWithPath leaves and closes a path that has the right to read. It expects the right
// to move back, and all frames to arrive in order through the I/O unit.
func TestRightEndsWithPath(t *testing.T) {
	s, d := newSplit(t, 2, Config{})
	p, direct := opened(t, s, peer)
	u := []*sender{uplinkOf(t, s, 0), uplinkOf(t, s, 1)}
	direct.drain(t)
	for _, q := range s.queues {
		q.mu.Lock()
		q.give(p.reader)
		q.mu.Unlock()
	}
	f, g := frame(peer, own, 100), frame(peer, own, 101)
	d[0].send(f)
	d[1].send(g)
	first := direct.read(t, 8)
	if len(first) != 1 {
		t.Fatalf("%d frames of two queues in one read", len(first))
	}
	p.Leave()
	if s.reads(0) != s.queues[0].uplink || s.reads(1) != s.queues[1].uplink || p.reader.rights.Load() != 0 {
		t.Error("the path still reads")
	}
	u[0].drain(t)
	u[1].drain(t)
	if direct.drain(t) != nil || p.Counts().Held != 1 {
		t.Error("frames do not wait for a path that is being left")
	}
	before := p.Counts()
	p.Close(&messaging.Unsent{Frames: [][][]byte{first}})
	sent, bytes := before.OutFrames-1, before.OutBytes-uint64(len(first[0])-vnet.HdrLen)
	if now := p.Counts(); now.OutFrames != sent || now.OutBytes != bytes {
		t.Errorf("%d frames of %d bytes were sent, want %d of %d", now.OutFrames, now.OutBytes, sent, bytes)
	}
	for i, want := range [][]byte{f, g} {
		if !readable(t, u[i].port.FD()) {
			t.Errorf("nobody is woken for queue %d", i)
		}
		expect(t, "the I/O unit", u[i], want)
	}
	p.Close(nil) // again
	if s.table.Load() != nil {
		t.Error("frames are looked up although no path is open")
	}
}

// TestBrokenNetdevice has the netdevice fail while a direct path reads. It expects the right to
// move to the path through the I/O unit, which reports the error.
func TestBrokenNetdevice(t *testing.T) {
	s, d := newSplit(t, 1, Config{})
	p, direct := opened(t, s, peer)
	u := uplinkOf(t, s, 0)
	q := s.queues[0]
	release(u)
	direct.drain(t)
	if q.graceEnds(); s.reads(0) != p.reader {
		t.Fatal("the direct path does not read")
	}
	d[0].fail(unix.EBADFD)
	if direct.read(t, 8) != nil || s.reads(0) != q.uplink {
		t.Error("the direct path still reads")
	}
	direct.read(t, 8) // the path wants the right
	if q.graceEnds(); s.reads(0) != q.uplink {
		t.Error("it reads again")
	}
	ops := u.ops[:1]
	if n := u.port.ReadFrames(ops); n != 1 || !errors.Is(ops[0].Err, unix.EBADFD) {
		t.Errorf("the I/O unit's path has %v", ops[0].Err)
	}
	d[0].fail(nil)
	if u.drain(t); q.broken {
		t.Error("a queue that works is broken")
	}
}

// TestFewerQueues begins a session with fewer queues than the previous one. It expects no reads
// from removed queues, and their frames in the last queue.
func TestFewerQueues(t *testing.T) {
	s, d := newSplit(t, 3, Config{})
	p, direct := opened(t, s, peer)
	var u []*sender
	for i := range s.queues {
		u = append(u, uplinkOf(t, s, i))
	}
	direct.drain(t)
	q := s.queues[2]
	q.mu.Lock()
	q.give(p.reader)
	q.mu.Unlock()
	f, g := frame(third, own, 100), frame(third, own, 101)
	d[2].send(f, g, frame(peer, own, 102))
	if got := direct.read(t, 8); len(got) != 1 {
		t.Fatalf("%d frames", len(got))
	}
	s.SetQueues(2)
	if s.reads(2) != q.uplink || q.free.Load() {
		t.Error("a queue that is not used any more is read")
	}
	expect(t, "the last queue", u[1], f, g)
	release(u[2])
	q.graceEnds()
	d[2].send(f)
	if direct.drain(t) != nil || s.reads(2) != q.uplink {
		t.Error("a queue that is not used any more is read")
	}
	s.SetQueues(9)
	if s.used.Load() != 3 {
		t.Error("there are more queues than the netdevice has")
	}
}

// TestRingFull expects a slow peer to lose frames while its path is open, and only those.
func TestRingFull(t *testing.T) {
	s, d := newSplit(t, 1, Config{Ring: minRing})
	p, direct := opened(t, s, peer)
	u := uplinkOf(t, s, 0)
	long, away := frame(peer, own, 60000), frame(third, own, 100)
	for range 10 {
		d[0].send(long, away)
		expect(t, "the I/O unit", u, away)
	}
	if c := p.Counts(); c.Held != 4 || c.Full != 6 {
		t.Errorf("%+v", c)
	}
	direct.drain(t)

	p.Leave()
	for range 10 {
		d[0].send(long)
	}
	expect(t, "the I/O unit", u)
	if c := p.Counts(); c.Held != 10 || c.Full != 6 {
		t.Errorf("%+v", c)
	}
	p.Close(nil)
	if p.reader.ring.buf != nil {
		t.Error("a closed path keeps its ring")
	}
	if got := u.drain(t); len(got) != 10 || s.Counts().UplinkFull != 0 {
		t.Errorf("%d frames of 10, %d were dropped", len(got), s.Counts().UplinkFull)
	}
	if got := len(s.queues[0].uplink.ring.buf); got != minRing {
		t.Errorf("the ring has %d bytes", got)
	}
}

// TestUplinkFull has the path through the I/O unit read nothing while a direct path reads. It
// expects frames that do not fit into the ring to be dropped and counted.
func TestUplinkFull(t *testing.T) {
	s, d := newSplit(t, 1, Config{Ring: minRing})
	_, direct := opened(t, s, peer)
	u := uplinkOf(t, s, 0)
	release(u)
	direct.drain(t)
	s.queues[0].graceEnds()
	to := frame(peer, own, 100)
	for range 10 {
		d[0].send(frame(third, own, 60000), to)
		expect(t, "the direct path", direct, to)
	}
	if got := len(u.drain(t)); got != 4 || s.Counts().UplinkFull != 6 {
		t.Errorf("%d frames are left, %d were dropped", got, s.Counts().UplinkFull)
	}
}

// TestPutBesideRead puts a frame into a reader's ring while the reader reads the netdevice, and
// before. It expects that the frame is not left in the ring when the sender sleeps, and is not
// overtaken.
func TestPutBesideRead(t *testing.T) {
	s, d := newSplit(t, 1, Config{})
	p, direct := opened(t, s, peer)
	uplinkOf(t, s, 0)
	direct.read(t, 8)
	q := s.queues[0]
	q.mu.Lock()
	q.give(p.reader)
	q.mu.Unlock()
	first, second := frame(peer, own, 100), frame(peer, own, 101)
	d[0].reading = func() {
		d[0].reading = nil
		p.reader.put(first, 0)
	}
	if got := direct.read(t, 8); len(got) != 1 {
		t.Errorf("%d frames were read, and one has come meanwhile", len(got))
	}
	p.reader.put(first, 0)
	d[0].send(second)
	if n, dry := q.read(p.reader, direct.ops, &borrower{}); n != 0 || dry {
		t.Errorf("%d frames of the netdevice's overtake one that was read before", n)
	}
	expect(t, "the direct path", direct, first, second)
}

// TestOneQueueDry has a reader of two queues empty one of them. It expects the reader to continue
// with the other one before the sender sleeps.
func TestOneQueueDry(t *testing.T) {
	s, d := newSplit(t, 2, Config{})
	p, direct := opened(t, s, peer)
	direct.drain(t)
	f := frame(peer, own, 100)
	for i, q := range s.queues {
		uplinkOf(t, s, i)
		q.mu.Lock()
		q.give(p.reader)
		q.mu.Unlock()
		d[i].send(f)
	}
	for range s.queues {
		if n := direct.port.ReadFrames(direct.ops); n != 1 || direct.ops[0].Err != nil {
			t.Fatalf("%d frames are read, %v", n, direct.ops[n-1].Err)
		}
	}
}

// TestUplinkIsWoken expects the sender of the path through the I/O unit to be woken for frames and
// markers while a direct path reads.
func TestUplinkIsWoken(t *testing.T) {
	s, _ := newSplit(t, 1, Config{})
	p, direct := opened(t, s, peer)
	u := uplinkOf(t, s, 0)
	direct.read(t, 8)
	q := s.queues[0]
	q.mu.Lock()
	q.give(p.reader)
	q.mu.Unlock()
	other, err := s.Open(Peer{MACs: []protocol.MAC{third}, Own: []protocol.MAC{own}, MTU: 1500})
	if err != nil {
		t.Fatal(err)
	}
	u.drain(t)
	if other.Mark(); !readable(t, u.port.FD()) {
		t.Error("nobody is woken for a marker")
	}
	u.drain(t)
	other.Enter()
	u.drain(t)
	f := frame(third, own, 100)
	other.reader.put(f, 0)
	if other.Close(nil); !readable(t, u.port.FD()) {
		t.Error("nobody is woken for what a path has left")
	}
	expect(t, "the I/O unit", u, f)
}

package paths

import (
	"errors"
	"net"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// noncesOf returns nonces: that of the markers begins with n, that of the probes with n+1.
func noncesOf(n byte) Nonces { return Nonces{Probe: [16]byte{n + 1}, Marker: [16]byte{n}} }

func markerOf(nonce byte, queue, queues int) []byte {
	m := protocol.Marker{Nonce: [16]byte{nonce}, Queue: uint16(queue), Queues: uint16(queues)}
	return protocol.AppendMarker(nil, own, peer, &m)
}

// write writes frames to a port. A frame that is longer than cut has two parts.
func write(t testing.TB, p messaging.Port, cut int, frames ...[]byte) (done int, last error) {
	t.Helper()
	ops := make([]vnet.WriteOp, len(frames))
	for i, f := range frames {
		if ops[i].Head = f; len(f) > cut {
			ops[i] = vnet.WriteOp{Head: f[:cut], Rest: f[cut:]}
		}
	}
	done = p.WriteFrames(ops)
	if done < len(ops) {
		last = ops[done].Err
	}
	for i := range ops[:done] {
		if ops[i].Err != nil {
			t.Errorf("frame %d: %v", i, ops[i].Err)
		}
	}
	return done, last
}

const whole = 1 << 20 // value of cut for frames in one part

// TestMarkersArrive delivers the peer's markers through all queues, among forged ones. It expects
// Arrived once, when all markers have arrived and the frames before the last marker are in the
// netdevice.
func TestMarkersArrive(t *testing.T) {
	s, d := newSplit(t, 2, Config{})
	arrived := 0
	f := frame(own, peer, 100)
	if _, err := s.Open(Peer{MACs: []protocol.MAC{peer}, Own: []protocol.MAC{own}, In: noncesOf(7), MTU: 1500,
		Arrived: func() {
			arrived++
			if got := d[1].received(); len(got) != 3 {
				t.Errorf("%d frames are in the netdevice when the markers have come", len(got))
			}
		}}); err != nil {
		t.Fatal(err)
	}
	forged := [][]byte{
		markerOf(9, 0, 3), markerOf(0, 0, 1), // an unknown nonce
		markerOf(7, 0, 0), markerOf(7, 3, 3), markerOf(7, 65535, 65535), markerOf(7, 0, 256), markerOf(7, 65535, 3),
		markerOf(7, 2, 3)[:protocol.MarkerLen-1],
	}
	for _, m := range forged {
		write(t, s.Uplink()[0], whole, m)
		write(t, s.Uplink()[1], whole, m)
	}
	if got := s.Counts().Markers; got != uint64(2*len(forged)) {
		t.Errorf("%d markers are not expected, of %d", got, 2*len(forged))
	}
	for range 2 { // a repeated marker counts once
		write(t, s.Uplink()[0], whole, markerOf(7, 0, 3), markerOf(7, 1, 3), markerOf(7, 2, 3))
		write(t, s.Uplink()[1], whole, markerOf(7, 0, 3), f, markerOf(7, 2, 3))
	}
	if arrived != 0 {
		t.Fatal("markers have arrived before they have")
	}
	write(t, s.Uplink()[1], whole, f, markerOf(7, 1, 3), f)
	write(t, s.Uplink()[1], whole, markerOf(7, 1, 3))
	if got := d[1].received(); arrived != 1 || len(got) != 1 || len(d[0].received()) != 0 {
		t.Errorf("they have arrived %d times, and %d frames then", arrived, len(got))
	}
}

// TestMarkersOfAnotherSession has the peer begin another session, with fewer queues, while its
// markers arrive. It expects that the markers of the previous session do not count for the new one.
func TestMarkersOfAnotherSession(t *testing.T) {
	s, _ := newSplit(t, 1, Config{})
	arrived := 0
	if _, err := s.Open(Peer{MACs: []protocol.MAC{peer}, Own: []protocol.MAC{own}, In: noncesOf(7), MTU: 1500,
		Arrived: func() { arrived++ }}); err != nil {
		t.Fatal(err)
	}
	write(t, s.Uplink()[0], whole, markerOf(7, 0, 3), markerOf(7, 1, 3), markerOf(7, 0, 2))
	if arrived != 0 {
		t.Error("a marker of an earlier session stands for one of this")
	}
	if write(t, s.Uplink()[0], whole, markerOf(7, 1, 2)); arrived != 1 {
		t.Error("the markers have not arrived")
	}
}

// TestMarkersWithoutPath delivers markers that are not expected. It expects them to be dropped and
// counted.
func TestMarkersWithoutPath(t *testing.T) {
	s, d := newSplit(t, 1, Config{})
	f := frame(own, peer, 100)
	write(t, s.Uplink()[0], whole, f, markerOf(1, 0, 1), f)
	if got := d[0].received(); len(got) != 2 || s.Counts().Markers != 1 {
		t.Errorf("%d frames, %+v", len(got), s.Counts())
	}
	p, _ := opened(t, s, peer)
	p.Close(nil)
	write(t, s.Uplink()[0], whole, markerOf(2, 0, 1)) // late
	if s.Counts().Markers != 2 {
		t.Errorf("%+v", s.Counts())
	}
}

// TestMarkerBehindFullQueue delivers a marker while the netdevice is full. It expects the marker to
// count only when the frames before it were written.
func TestMarkerBehindFullQueue(t *testing.T) {
	s, d := newSplit(t, 1, Config{})
	arrived := false
	if _, err := s.Open(Peer{MACs: []protocol.MAC{peer}, Own: []protocol.MAC{own}, In: noncesOf(7), MTU: 1500,
		Arrived: func() { arrived = true }}); err != nil {
		t.Fatal(err)
	}
	f := frame(own, peer, 100)
	d[0].full = true
	if done, err := write(t, s.Uplink()[0], whole, f, markerOf(7, 0, 1)); done != 0 || !errors.Is(err, unix.EAGAIN) {
		t.Errorf("%d frames, %v", done, err)
	}
	if arrived {
		t.Error("the marker has overtaken a frame")
	}
	d[0].full = false
	if write(t, s.Uplink()[0], whole, f, markerOf(7, 0, 1)); !arrived {
		t.Error("the marker has not arrived")
	}
}

// TestFewerQueuesLeft begins a session with fewer queues when only the markers through the removed
// queues are missing. It expects Probed and Arrived, once each.
func TestFewerQueuesLeft(t *testing.T) {
	s, _ := newSplit(t, 2, Config{})
	arrived := 0
	probed := 0
	if _, err := s.Open(Peer{MACs: []protocol.MAC{peer}, Own: []protocol.MAC{own}, In: noncesOf(7), MTU: 1500,
		Probed: func() { probed++ }, Arrived: func() { arrived++ }}); err != nil {
		t.Fatal(err)
	}
	write(t, s.Uplink()[0], whole, markerOf(7, 0, 1), markerOf(8, 0, 1))
	s.SetQueues(1)
	s.SetQueues(1)
	if probed != 1 || arrived != 1 {
		t.Errorf("the probes have arrived %d times, the markers %d times", probed, arrived)
	}
}

// TestMarkersAreSent expects markers to be sent through each queue after the frames in the queue,
// again after each Mark, and not when the path needs none any more. Probes are sent first, and no
// frame waits for them.
func TestMarkersAreSent(t *testing.T) {
	s, d := newSplit(t, 2, Config{})
	p, err := s.Open(Peer{MACs: []protocol.MAC{peer, behind}, Own: []protocol.MAC{own, second}, Out: noncesOf(9),
		MTU: 1500})
	if err != nil {
		t.Fatal(err)
	}
	u := []*sender{newSender(s.Uplink()[0], 8), newSender(s.Uplink()[1], 8)}
	f := frame(peer, own, 100)
	each := func(nonce byte) {
		t.Helper()
		for i := range u {
			m := protocol.Marker{Nonce: [16]byte{nonce}, Queue: uint16(i), Queues: 2}
			want := protocol.AppendMarker(nil, peer, own, &m)
			if !readable(t, u[i].port.FD()) {
				t.Error("nobody is woken")
			}
			expect(t, "the I/O unit", u[i], want)
			p.Mark()
			expect(t, "the I/O unit", u[i], want)
			u[1-i].drain(t)
			p.Mark()
		}
		u[0].drain(t)
	}
	d[0].send(f)
	expect(t, "the I/O unit", u[0], f)
	p.Mark()
	each(10)
	d[0].send(f)
	expect(t, "the I/O unit", u[0], f)
	if p.Counts().Held != 0 {
		t.Error("frames wait for probes")
	}
	p.Enter()
	d[0].send(f)
	each(9)
	if p.Counts().Held != 1 {
		t.Errorf("%+v", p.Counts())
	}
	p.Confirm()
	u[0].drain(t)
	u[1].drain(t)
	p.Mark()
	p.Leave()
	p.Mark()
	expect(t, "the I/O unit", u[0])
	p.Close(nil)
	p.Mark()
	expect(t, "the I/O unit", u[0], f)
}

// TestProbesArrive delivers the peer's probes, and then its markers. It expects that neither counts
// as the other.
func TestProbesArrive(t *testing.T) {
	s, _ := newSplit(t, 2, Config{})
	probed, arrived := 0, 0
	if _, err := s.Open(Peer{MACs: []protocol.MAC{peer}, Own: []protocol.MAC{own}, In: noncesOf(7), MTU: 1500,
		Probed: func() { probed++ }, Arrived: func() { arrived++ }}); err != nil {
		t.Fatal(err)
	}
	write(t, s.Uplink()[0], whole, markerOf(8, 0, 1))
	write(t, s.Uplink()[1], whole, markerOf(7, 0, 1))
	if probed+arrived != 0 {
		t.Error("a probe is as good as a marker")
	}
	write(t, s.Uplink()[1], whole, markerOf(8, 0, 1))
	if probed != 1 || arrived != 0 {
		t.Errorf("probes have arrived %d times, markers %d times", probed, arrived)
	}
	write(t, s.Uplink()[0], whole, markerOf(7, 0, 1))
	if probed != 1 || arrived != 1 || s.Counts().Markers != 0 {
		t.Errorf("probes have arrived %d times, markers %d times; %+v", probed, arrived, s.Counts())
	}
}

// TestPathsToOneAddress opens paths with data of the I/O unit that is invalid or conflicts with
// another path, and expects errors.
func TestPathsToOneAddress(t *testing.T) {
	s, _ := newSplit(t, 1, Config{})
	p, _ := opened(t, s, peer, behind)
	for name, tc := range map[string]struct {
		macs, own []protocol.MAC
		want      error
	}{
		"an address of another path": {[]protocol.MAC{third, behind}, []protocol.MAC{own}, errTaken},
		"a group":                    {[]protocol.MAC{{3}}, []protocol.MAC{own}, protocol.ErrMAC},
		"this host a group":          {[]protocol.MAC{third}, []protocol.MAC{all}, protocol.ErrMAC},
		"no address":                 {nil, []protocol.MAC{own}, errNoAddress},
		"no address of this host":    {[]protocol.MAC{third}, nil, errNoAddress},
	} {
		if _, err := s.Open(Peer{MACs: tc.macs, Own: tc.own, MTU: 1500}); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	p.Close(nil)
	opened(t, s, peer, behind)
}

// tiny returns a super-frame from the peer with segments of one byte.
func tiny() []byte {
	f := packet(own, peer, 4, 2, 1, [2]uint16{80, 80})
	f = append(f, make([]byte, 3000)...)
	copy(f, []byte{1, vnet.GSOTCPv4, 54, 0, 1, 0, 34, 0, 16, 0})
	f[vnet.MinFrame+9], f[vnet.MinFrame+32] = 6, 0x50
	return f
}

// TestFromPeer has a peer send frames that it may send, and frames that it may not send. It expects
// the latter to be dropped and counted by reason.
func TestFromPeer(t *testing.T) {
	for _, cut := range []int{whole, 20, 24, 100} {
		s, d := newSplit(t, 2, Config{})
		p, direct := opened(t, s, peer)
		long := frame(own, peer, 1514)
		done, _ := write(t, direct.port, cut, frame(own, third, 60), frame(own, peer, 60), frame(third, peer, 60),
			frame(all, peer, 60), frame(own, peer, 60, 5), frame(own, peer, 60, 6), frame(own, peer, 1519),
			edited(frame(own, peer, 60), 0, 0x40), long, markerOf(2, 0, 1), tiny())
		got := d[0].received() // frames without a flow go to queue 0
		want := [][]byte{frame(own, peer, 60), frame(own, peer, 60, 5), long, markerOf(2, 0, 1)}
		if done != 11 || !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("in parts of %d: %d frames of %d are done with, %d written", cut, done, 11, len(got))
		}
		c := p.Counts()
		if c.Source != 1 || c.Destination != 2 || c.VLAN != 1 || c.Malformed != 3 || c.InFrames != 4 ||
			c.InBytes != 60+60+1514+60 {
			t.Errorf("in parts of %d: %+v", cut, c)
		}
		if s.Counts().Markers != 0 {
			t.Error("a marker that came directly is taken for one")
		}
	}
}

// TestPeerChangesFrame has a peer change a frame after the check. It expects the checked contents
// to be written.
func TestPeerChangesFrame(t *testing.T) {
	s, d := newSplit(t, 1, Config{})
	p, direct := opened(t, s, peer)
	for n := vnet.MinFrame; n < 2*headSize; n++ {
		f := frame(own, peer, n-vnet.HdrLen)
		want := slices.Clone(f)
		d[0].before = func() {
			for i := range min(len(f), headSize) {
				f[i] ^= 0xff
			}
		}
		write(t, direct.port, whole, f)
		if got := d[0].received(); len(got) != 1 || !slices.Equal(got[0], want) {
			t.Fatalf("a frame of %d bytes is %x", n, got)
		}
	}
	if c := p.Counts(); c.Malformed+c.Source+c.Destination+c.VLAN != 0 {
		t.Errorf("%+v", c)
	}
}

// TestNetdeviceFull writes frames while the netdevice is full. It expects that no frame is counted
// twice, or lost.
func TestNetdeviceFull(t *testing.T) {
	s, d := newSplit(t, 1, Config{})
	p, direct := opened(t, s, peer)
	bad, good := frame(own, third, 60), frame(own, peer, 60)
	d[0].full = true
	done, err := write(t, direct.port, whole, bad, good, bad)
	if done != 1 || !errors.Is(err, unix.EAGAIN) {
		t.Errorf("%d frames are done with, %v", done, err)
	}
	d[0].full = false
	if done, _ = write(t, direct.port, whole, good, bad); done != 2 {
		t.Errorf("%d frames are done with", done)
	}
	if c := p.Counts(); c.Source != 2 || c.InFrames != 1 || len(d[0].received()) != 1 {
		t.Errorf("%+v", c)
	}
	many := make([][]byte, 3*burst)
	for i := range many {
		many[i] = good
	}
	if write(t, direct.port, whole, many...); len(d[0].received()) != len(many) {
		t.Error("frames are lost among many")
	}
}

// TestClosedPath uses the port of a closed path, and expects net.ErrClosed.
func TestClosedPath(t *testing.T) {
	s, d := newSplit(t, 1, Config{})
	p, direct := opened(t, s, peer)
	p.Close(nil)
	release(direct)
	ops := direct.ops[:1]
	if n := direct.port.ReadFrames(ops); n != 1 || !errors.Is(ops[0].Err, net.ErrClosed) {
		t.Errorf("%d frames, %v", n, ops[0].Err)
	}
	in := []vnet.WriteOp{{Head: frame(own, peer, 60)}}
	if n := direct.port.WriteFrames(in); n != 1 || !errors.Is(in[0].Err, net.ErrClosed) || len(d[0].received()) != 0 {
		t.Errorf("a frame from a peer that is gone is written: %d, %v", n, in[0].Err)
	}
}

// TestFramesDoNotAllocate sends frames on each path that a frame can take, and expects no
// allocation.
func TestFramesDoNotAllocate(t *testing.T) {
	s, d := newSplit(t, 1, Config{})
	p, direct := opened(t, s, peer)
	u := uplinkOf(t, s, 0)
	d[0].quiet = true
	to, away := frame(peer, own, 1000), frame(third, own, 1000)
	in := []vnet.WriteOp{{Head: frame(own, peer, 1000)}, {Head: frame(own, third, 1000)}, {Head: frame(own, peer, 60)}}
	buffer := [][]byte{to, away, to, away}
	got := testing.AllocsPerRun(200, func() {
		d[0].in = buffer
		u.port.ReadFrames(u.ops)
		direct.port.ReadFrames(direct.ops)
		d[0].in = buffer
		s.queues[0].mu.Lock()
		s.queues[0].give(p.reader)
		s.queues[0].mu.Unlock()
		direct.port.ReadFrames(direct.ops)
		u.port.ReadFrames(u.ops)
		release(direct)
		s.queues[0].graceEnds()
		direct.port.WriteFrames(in)
		s.Uplink()[0].WriteFrames(in)
	})
	if got != 0 {
		t.Errorf("%v allocations", got)
	}
}

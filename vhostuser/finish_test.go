package vhostuser

import (
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/vnet"
)

// TestFinished writes a super-frame to a driver without offloads, and reads a super-frame of a
// driver for a session without offloads. Both have to get the segments.
func TestFinished(t *testing.T) {
	super := superFrame(3, 0)
	in := newGuest(t, featVersion1, 0, 1)
	for range 3 {
		in.add([]buffer{in.alloc(2000)}, false)
	}
	ops := []vnet.WriteOp{{Head: super}}
	if n := in.v.write(ops, false); n != 1 || ops[0].Err != nil {
		t.Fatal(n, ops[0].Err, in.ended())
	}
	for i := range 3 {
		if n, ok := in.used(); !ok || n != 12+54+1000 {
			t.Errorf("segment %d: %d bytes, %t", i, n, ok)
		}
	}
	out := newGuest(t, modern, 1, 1)
	out.d.granted.Store(0)
	raw := append(append(super[:10:10], 0, 0), super[10:]...)
	b := out.alloc(len(raw))
	copy(out.at(b), raw)
	out.add([]buffer{b}, false)
	reads, got := readOps(2), 0
	for n := out.v.read(reads, nil, true); n > 0; n = out.v.read(reads, nil, true) {
		for i := range reads[:n] {
			if f := reads[i].Frame; len(f) != vnet.HdrLen+54+1000 || !vnet.IsPlain(f) || vnet.Check(f, 1500) != nil {
				t.Errorf("a segment of %d bytes: %v", len(f), reads[i].Err)
			}
			got++
		}
	}
	if got != 3 {
		t.Errorf("%d segments", got)
	}
}

// superFrame returns a super-frame of TCP with segments of 1000 bytes, from sequence number seq on.
func superFrame(segments int, seq uint32) []byte {
	super := make([]byte, vnet.HdrLen+54+segments*1000)
	h := vnet.Header{
		Flags: vnet.FlagNeedsCsum, GSOType: vnet.GSOTCPv4, HdrLen: 54, GSOSize: 1000, CsumStart: 34, CsumOffset: 16,
	}
	h.Encode(super)
	eth := super[vnet.HdrLen:]
	copy(eth, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00, 0x45})
	binary.BigEndian.PutUint32(eth[38:], seq)
	eth[23], eth[46] = 6, 5<<4
	return super
}

// TestFinishedInPieces writes super-frames to a driver without offloads that makes fewer buffers
// available at a time than a super-frame has segments. It expects each segment once and in order,
// as the driver makes more buffers available, also if another frame is written in between.
func TestFinishedInPieces(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			const buffers, segments, first, second = 8, 40, 1 << 20, 2 << 20
			g := newGuest(t, featVersion1|kind&(featEventIdx|featPacked), 0, 1)
			var posted []buffer
			post := func() {
				posted = append(posted, g.alloc(2000))
				g.add(posted[len(posted)-1:], false)
			}
			for range buffers {
				post()
			}
			// take takes the used buffers, and returns the sequence numbers of the segments.
			take := func() (seqs []uint32) {
				for n, ok := g.used(); ok; n, ok = g.used() {
					if got := g.at(posted[0]); n == 12+54+1000 {
						seqs = append(seqs, binary.BigEndian.Uint32(got[12+38:]))
					} else if n != 12+60 {
						t.Errorf("a frame of %d bytes", n)
					}
					posted = posted[1:]
					post()
				}
				return seqs
			}
			write := func(frame []byte) int {
				ops := []vnet.WriteOp{{Head: frame[:100], Rest: frame[100:]}}
				n := g.v.write(ops, false)
				if n == 0 {
					n = g.v.write(ops, true)
				}
				if err := g.ended(); ops[0].Err != nil || err != nil {
					t.Fatal(ops[0].Err, err)
				}
				return n
			}
			var got []uint32
			part := func(frame []byte) {
				t.Helper()
				if write(frame) != 0 {
					t.Fatal("a frame is written for which there is no room")
				}
				now := take()
				if len(now) != buffers {
					t.Fatalf("there was room for %d segments, and %d came", buffers, len(now))
				}
				got = append(got, now...)
			}
			want := func(seq uint32, n int) {
				t.Helper()
				for i := range n {
					if len(got) != n || got[i] != seq+uint32(i)*1000 {
						t.Fatalf("segments %d, want %d from %d", got, n, seq)
					}
				}
				got = nil
			}
			frame := superFrame(segments, first)
			for range segments/buffers - 1 {
				part(frame)
			}
			plain := []vnet.WriteOp{{Head: make([]byte, vnet.HdrLen+60)}}
			if g.v.write(plain, false) != 1 || len(take()) != 0 {
				t.Fatal("a frame is not written for which there is room")
			}
			if write(frame) != 1 {
				t.Fatal("the rest of a frame is not written for which there is room")
			}
			got = append(got, take()...)
			want(first, segments)
			part(frame)
			want(first, buffers) // the rest of this frame is never written
			for frame = superFrame(segments, second); len(got) < segments-buffers; {
				part(frame)
			}
			if write(frame) != 1 {
				t.Fatal("the rest of a frame is not written for which there is room")
			}
			got = append(got, take()...)
			want(second, segments)
		})
	}
}

// TestFinishedBehindLent reads a super-frame whose chain is the last one of a full ring. It expects
// the frames of all other chains to be lent, and the super-frame as its segments.
func TestFinishedBehindLent(t *testing.T) {
	for name, feats := range kinds {
		t.Run(name, func(t *testing.T) {
			g := newGuest(t, feats, 1, 1)
			g.d.granted.Store(0)
			for range ringSize - 1 {
				g.add([]buffer{g.alloc(lentFrom)}, false)
			}
			super := superFrame(3, 0)
			raw := append(append(super[:10:10], 0, 0), super[10:]...)
			b := g.alloc(len(raw))
			copy(g.at(b), raw)
			g.add([]buffer{b}, false)
			to, got := newBorrower(g, 8), 0
			for ops := readOps(8); ; {
				n := to.read(t, g, ops, true)
				if n == 0 {
					break
				}
				got += n
			}
			if err := g.ended(); len(to.loans) != ringSize-1 || got != ringSize-1+3 || err != nil {
				t.Errorf("%d frames are lent, and %d read: %v", len(to.loans), got, err)
			}
		})
	}
}

// TestFinishedBehindTruncated reads a frame to be lent whose file was truncated, and then a segment
// of another frame from the next ring. It expects an error for the first ring, and no part of the
// segment to be lent.
func TestFinishedBehindTruncated(t *testing.T) {
	g, other := newGuest(t, modern, 1, 1), newGuest(t, modern, 3, 1)
	const lost = guestSize - 2*lentFrom // the file ends here
	g.add([]buffer{g.alloc(12), {guestBase + lost, 2 * lentFrom}}, false)
	to := newBorrower(g, 1)
	if err := unix.Ftruncate(g.fd, lost); err != nil {
		t.Fatal(err)
	}
	other.d.granted.Store(0)
	super := superFrame(3, 0)
	raw := append(append(super[:10:10], 0, 0), super[10:]...)
	b := other.alloc(len(raw))
	copy(other.at(b), raw)
	other.add([]buffer{b}, false)
	ops := readOps(1)
	if n := other.v.read(ops, nil, false); n != 1 || !other.v.finish.more() {
		t.Fatalf("%d segments are read", n)
	}
	q, err := newQueue(g.d.lender)
	if err != nil {
		t.Fatal(err)
	}
	defer q.close()
	q.reads.Store(&[]*vring{other.v, g.v}) // the second ring is read first
	n := q.ReadLent(ops, to.lent, to.keys)
	if !errors.Is(g.ended(), errTruncated) || n != 1 || ops[0].Err != nil || len(ops[0].Frame) != vnet.HdrLen+54+1000 {
		t.Errorf("%d frames are read, %d bytes, %v", n, len(ops[0].Frame), ops[0].Err)
	}
	if l := &to.lent[0]; len(l.Pieces) > 0 || l.Loan.Memory != nil {
		t.Errorf("%d pieces are lent: %+v", len(l.Pieces), l.Loan)
	}
}

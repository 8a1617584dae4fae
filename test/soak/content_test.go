package soak

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
	"github.com/splitnic/splitnic/vnet/frametest"
)

// mix is a pseudo-random function of its arguments (the finaliser of SplitMix64).
func mix(a, b uint64) uint64 {
	x := a ^ (b+1)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// stream is the frames of one data channel in one direction. The length and content of frame n
// follow from key and n alone.
type stream struct {
	key   uint64
	limit int // bytes of the longest frame, virtio_net_hdr included
	mtu   int
}

// length returns the length of frame n, from the shortest frame to the longest that the session can
// carry. Most frames have lengths that are usual on other networks.
func (s *stream) length(n uint64) int {
	r := mix(s.key, n)
	kind, r := r&15, r>>4
	most := s.limit
	switch {
	case kind == 0 && r&3 == 0:
		return s.limit
	case kind == 1 && r&3 == 0:
		return vnet.MinFrame
	case kind < 4:
	case kind < 8:
		most = vnet.MinFrame + 100
	case kind < 10:
		most = 4096
	default:
		most = vnet.HdrLen + vnet.EthLen + s.mtu
	}
	most = min(most, s.limit)
	return vnet.MinFrame + int((r>>2)%uint64(most-vnet.MinFrame+1))
}

// Offsets of the fields that identify a frame. They are in the addresses of the Ethernet header,
// which are not evaluated on the way.
const (
	seqAt  = vnet.HdrLen
	keyAt  = seqAt + 8
	typeAt = keyAt + 4
)

// fill writes frame n to the beginning of slot and returns it. A frame over the MTU is a TCP
// super-frame.
func (s *stream) fill(slot []byte, n uint64) []byte {
	size := s.length(n)
	f := slot[:size]
	frametest.Fill(f, mix(s.key^0x5bd1e995, n))
	clear(f[:vnet.HdrLen])
	binary.BigEndian.PutUint64(f[seqAt:], n)
	binary.BigEndian.PutUint32(f[keyAt:], uint32(s.key))
	eth := f[vnet.HdrLen:]
	if len(eth) <= s.mtu+vnet.EthLen {
		binary.BigEndian.PutUint16(f[typeAt:], 0x88b5) // for local experiments
		return f
	}
	h := vnet.Header{
		Flags: vnet.FlagNeedsCsum, GSOType: vnet.GSOTCPv4, HdrLen: 54, GSOSize: uint16(s.mtu - 40),
		CsumStart: 34, CsumOffset: 16,
	}
	h.Encode(f)
	binary.BigEndian.PutUint16(f[typeAt:], 0x0800)
	eth[14], eth[14+9], eth[34+12] = 0x45, 6, 5<<4
	return f
}

// spoil makes a frame invalid for every receiver: the place for its checksum is behind the longest
// frame.
func spoil(f []byte) {
	h := vnet.Header{Flags: vnet.FlagNeedsCsum, CsumStart: 0xffff, CsumOffset: 0xffff}
	h.Encode(f)
}

// tally counts frames that arrived.
type tally struct {
	frames, bytes uint64
	wrong         uint64 // content differs from what was sent, or frame of another stream
	doubled       uint64 // arrived again, or after a frame that was sent later
	lost          uint64 // not arrived before a frame that was sent later
	first         error  // the first error
	tolerated     uint64 // lost, if messages may get lost
	next          uint64 // number of the expected frame
	lossy         bool   // messages may get lost
}

func (y *tally) add(o *tally) {
	y.frames += o.frames
	y.bytes += o.bytes
	y.wrong += o.wrong
	y.doubled += o.doubled
	y.lost += o.lost
	y.tolerated += o.tolerated
	if y.first == nil {
		y.first = o.first
	}
}

// bad returns the number of frames that are wrong, doubled or lost.
func (y *tally) bad() uint64 { return y.wrong + y.doubled + y.lost }

// take checks the next frame that arrives from s. scratch has room for the longest frame.
func (y *tally) take(s *stream, f, scratch []byte) {
	y.frames++
	y.bytes += uint64(len(f))
	blame := func(count *uint64, by uint64, format string, args ...any) {
		*count += by
		if y.first == nil {
			y.first = fmt.Errorf("stream %#x: "+format, append([]any{s.key}, args...)...)
		}
	}
	n := binary.BigEndian.Uint64(f[seqAt:])
	if !bytes.Equal(f, s.fill(scratch, n)) {
		blame(&y.wrong, 1, "%d bytes arrived in place of frame %d, which say that they are frame %d of stream %#x",
			len(f), y.next, n, binary.BigEndian.Uint32(f[keyAt:]))
		return
	}
	switch {
	case n < y.next:
		blame(&y.doubled, 1, "frame %d arrived when %d was expected", n, y.next)
		return
	case n > y.next && y.lossy:
		y.tolerated += n - y.next
	case n > y.next:
		blame(&y.lost, n-y.next, "frame %d arrived when %d was expected", n, y.next)
	}
	y.next = n + 1
}

// TestSpoil spoils frames of all possible lengths, and expects that vnet.Check refuses each.
func TestSpoil(t *testing.T) {
	b := make([]byte, vnet.MaxFrame)
	for _, mtu := range []int{1500, protocol.MaxMTU} {
		for n := vnet.MinFrame; n <= vnet.MaxFrame; n++ {
			spoil(b[:n])
			if err := vnet.Check(b[:n], mtu); !errors.Is(err, vnet.ErrCsum) {
				t.Fatalf("a spoilt frame of %d bytes, MTU %d: %v", n, mtu, err)
			}
		}
	}
}

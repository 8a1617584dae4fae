package protocol

import (
	"encoding/binary"
	"fmt"
)

// A pack is several small frames in one transfer:
//
//	0  128, a flag that no virtio_net_hdr has, to tell a pack from a frame
//	1  0
//	2  number of frames, 16 bits, 1 to MaxPackFrames
//	4  the frames, each behind its length, 16 bits
//
// without padding and with nothing behind the last frame. It is sent only to a
// peer that has FeaturePack.
const (
	PackHeaderSize = 4 // before the first record
	PackRecordSize = 2 // before each frame
	// MaxPackFrames is the largest number of frames in a pack.
	MaxPackFrames = 64

	packFlag = 0x80
)

// FeaturePack is the feature of a side that receives packs.
const FeaturePack = "pack"

// IsPack reports whether the data of a transfer is a pack, which may be malformed.
func IsPack(b []byte) bool { return len(b) > 0 && b[0] == packFlag }

// PutPackHeader writes the header of a pack with that number of frames to dst.
func PutPackHeader(dst []byte, frames int) {
	_ = dst[PackHeaderSize-1]
	dst[0], dst[1] = packFlag, 0
	binary.BigEndian.PutUint16(dst[2:], uint16(frames))
}

// PutPackRecord writes the length of a frame, which precedes the frame, to dst.
func PutPackRecord(dst []byte, length int) { binary.BigEndian.PutUint16(dst, uint16(length)) }

// Pack iterates over the frames of a pack. It reads everything only once, so that the pack may be
// in memory to which the peer can still write.
type Pack struct {
	rest []byte
	left int
}

// DecodePack begins the iteration over a pack. IsPack must have returned true.
func DecodePack(b []byte) (Pack, error) {
	if len(b) < PackHeaderSize {
		return Pack{}, fmt.Errorf("%w: a pack of %d bytes", ErrShort, len(b))
	}
	if b[1] != 0 {
		return Pack{}, fmt.Errorf("%w: %#x in byte 1 of a pack", ErrPadding, b[1])
	}
	n := int(binary.BigEndian.Uint16(b[2:]))
	if n < 1 || n > MaxPackFrames {
		return Pack{}, fmt.Errorf("%w: %d frames in a pack, must be 1 to %d", ErrCount, n, MaxPackFrames)
	}
	return Pack{rest: b[PackHeaderSize:], left: n}, nil
}

// Left returns the number of remaining frames.
func (p *Pack) Left() int { return p.left }

// Next returns the next frame, which is part of the pack. Left must not be 0. The caller has to
// check the frame.
func (p *Pack) Next() ([]byte, error) {
	if len(p.rest) < PackRecordSize {
		return nil, fmt.Errorf("%w: a pack ends before %d more frames", ErrShort, p.left)
	}
	n := int(binary.BigEndian.Uint16(p.rest))
	rest := p.rest[PackRecordSize:]
	if n > len(rest) {
		return nil, fmt.Errorf("%w: a frame of %d bytes in a pack that has %d left", ErrShort, n, len(rest))
	}
	p.rest = rest[n:]
	p.left--
	if p.left == 0 && len(p.rest) > 0 {
		return nil, fmt.Errorf("%w: %d behind the last frame of a pack", ErrTrailing, len(p.rest))
	}
	return rest[:n:n], nil
}

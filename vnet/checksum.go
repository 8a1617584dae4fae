package vnet

import "encoding/binary"

// complete completes the checksum at the place that h, which is valid, says, over the sum that is
// there already.
func complete(eth []byte, h *Header) {
	at := int(h.CsumStart) + int(h.CsumOffset)
	sum := ^fold(add(0, eth[h.CsumStart:]))
	if sum == 0 {
		sum = 0xffff // in UDP, 0 means no checksum
	}
	binary.BigEndian.PutUint16(eth[at:], sum)
}

// add adds bytes to an Internet checksum that is not folded.
func add(sum uint32, b []byte) uint32 {
	wide := uint64(sum)
	for ; len(b) >= 4; b = b[4:] {
		wide += uint64(binary.BigEndian.Uint32(b))
	}
	if len(b) >= 2 {
		wide += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		wide += uint64(b[0]) << 8
	}
	for wide>>32 != 0 {
		wide = wide&0xffffffff + wide>>32
	}
	return uint32(wide)
}

// fold returns the 16-bit sum.
func fold(sum uint32) uint16 {
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

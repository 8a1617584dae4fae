package vnet

import "encoding/binary"

// InsertVLAN inserts a VLAN tag, which the kernel has delivered separately, into its frame. buf
// has Headroom spare bytes and then [header | frame]. Afterwards all of buf is
// [header | frame], one tag longer, and the offsets in the header are adjusted. buf must have
// at least Headroom + MinFrame bytes.
func InsertVLAN(buf []byte, tpid, tci uint16) {
	const moved = HdrLen + 12 // the header and both addresses
	copy(buf[:moved], buf[Headroom:Headroom+moved])
	binary.BigEndian.PutUint16(buf[moved:], tpid)
	binary.BigEndian.PutUint16(buf[moved+2:], tci)
	if n := binary.LittleEndian.Uint16(buf[2:]); n != 0 {
		binary.LittleEndian.PutUint16(buf[2:], n+TagLen)
	}
	if buf[0]&FlagNeedsCsum != 0 {
		binary.LittleEndian.PutUint16(buf[6:], binary.LittleEndian.Uint16(buf[6:])+TagLen)
	}
}

// RewriteHdrLen sets the header's HdrLen to the end of the transport header. The kernel's value
// is the size of the linear part of its buffer: all 64 KiB for a forwarded super-frame. A
// packet socket allocates that many bytes in one piece when the frame is sent. Frames without
// segmentation, and super-frames that do not contain their headers, get 0, which means unknown.
// frame must have at least MinFrame bytes.
func RewriteHdrLen(frame []byte) {
	n := 0
	if frame[1] != GSONone {
		start := int(binary.LittleEndian.Uint16(frame[6:]))
		n = max(transportEnd(frame[HdrLen:], start, frame[1] != GSOUDPL4), 0)
	}
	binary.LittleEndian.PutUint16(frame[2:], uint16(n))
}

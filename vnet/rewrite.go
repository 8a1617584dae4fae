package vnet

import "encoding/binary"

// InsertVLAN puts a VLAN tag that the kernel handed over beside the frame back
// into it. buf holds Headroom spare bytes and then [header | frame]; afterwards
// all of buf is [header | frame], one tag longer. The offsets in the header
// move with the packet. buf must have at least Headroom + MinFrame bytes.
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

// RewriteHdrLen sets the header's HdrLen to where the transport header ends.
// The kernel's own value counts whatever happened to be linear, for a forwarded
// super-frame all 64 KiB of it, and a packet socket allocates that much in one
// piece when the frame is sent. Frames without segmentation get 0, which means
// unknown, and so do super-frames that do not contain their headers. frame must
// have at least MinFrame bytes.
func RewriteHdrLen(frame []byte) {
	n := 0
	if frame[1] != GSONone {
		start := int(binary.LittleEndian.Uint16(frame[6:]))
		n = max(transportEnd(frame[HdrLen:], start, frame[1] != GSOUDPL4), 0)
	}
	binary.LittleEndian.PutUint16(frame[2:], uint16(n))
}

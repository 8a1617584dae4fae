package vnet

import "encoding/binary"

const (
	// minTCPSegment is the smallest size in bytes of a TCP segment's options and payload
	// together that Linux sends: net.ipv4.tcp_min_snd_mss, which counts both, cannot be set
	// lower than TCP_MIN_SND_MSS.
	minTCPSegment = 48
	// maxUDPSegments is how many datagrams in one super-frame Linux accepts from a socket:
	// UDP_MAX_SEGMENTS. Before 6.9, and for received super-frames, it is half of that.
	maxUDPSegments = 128
)

// OnWire returns how many frames a [virtio_net_hdr | frame] of n bytes has on the wire, and
// their length together in bytes. Each has its headers, is padded to MinWire and counts without
// its frame check sequence. head is the beginning of the frame, at least HdrLen bytes. A
// transport header behind head counts with its shortest length.
//
// borrowed: head, for the call.
func OnWire(head []byte, n int) (frames, bytes int) {
	eth := max(n-HdrLen, 0)
	size := int(binary.LittleEndian.Uint16(head[4:]))
	if head[1] == GSONone || size == 0 {
		return 1, max(eth, MinWire)
	}
	headers := headersEnd(head)
	frames = segments(eth-headers, size)
	if headers+size >= MinWire {
		last := eth - (frames-1)*size
		return frames, (frames-1)*(headers+size) + max(last, MinWire)
	}
	return frames, frames * MinWire
}

// Tiny reports whether a super-frame of n bytes, which begins with head, has more or shorter
// segments than any that Linux makes itself. Such a frame is made to keep processors and
// switches busy.
//
// borrowed: head, for the call.
func Tiny(head []byte, n int) bool {
	size := int(binary.LittleEndian.Uint16(head[4:]))
	switch {
	case head[1] == GSONone || size == 0: // not a super-frame: Check refuses a size of 0
		return false
	case head[1] == GSOUDPL4:
		return segments(n-HdrLen-headersEnd(head), size) > maxUDPSegments
	default:
		start := int(binary.LittleEndian.Uint16(head[6:]))
		options := headersEnd(head) - start - tcpMinLen
		return options+size < minTCPSegment
	}
}

// segments returns how many segments of the given size a payload has.
func segments(payload, size int) int {
	if size == 0 {
		return 1
	}
	return max((payload+size-1)/size, 1)
}

// headersEnd returns the length of a super-frame's headers. A transport header whose length is
// not in head counts as the shortest.
func headersEnd(head []byte) int {
	start := int(binary.LittleEndian.Uint16(head[6:]))
	if head[1] == GSOUDPL4 {
		return start + udpLen
	}
	if at := HdrLen + start + 12; at < len(head) {
		return start + max(int(head[at]>>4)*4, tcpMinLen)
	}
	return start + tcpMinLen
}

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

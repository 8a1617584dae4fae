package vnet

import "encoding/binary"

const (
	// MinWire is the length in bytes of the shortest Ethernet frame without its
	// frame check sequence: what is shorter is padded.
	MinWire = 60
	// minTCPSegment bounds a TCP segment's options and payload together. Linux
	// sends none below: net.ipv4.tcp_min_snd_mss, which counts both, cannot be set
	// lower than TCP_MIN_SND_MSS.
	minTCPSegment = 48
	// maxUDPSegments is how many datagrams Linux takes from a socket in one
	// super-frame, UDP_MAX_SEGMENTS; before 6.9, and for received ones, it is half
	// of that.
	maxUDPSegments = 128
)

// OnWire says what a [virtio_net_hdr | frame] of n bytes is on the wire: in how
// many frames, of how many bytes together, each with its headers and padded to
// MinWire, without frame check sequences. head is the beginning of it, HdrLen
// bytes at least: headers that lie behind head count as the shortest.
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

// Tiny reports whether a super-frame of n bytes, which begins with head, has more
// and shorter segments than any of Linux's own: made to keep processors and
// switches busy.
//
// borrowed: head, for the call.
func Tiny(head []byte, n int) bool {
	size := int(binary.LittleEndian.Uint16(head[4:]))
	switch {
	case head[1] == GSONone || size == 0: // and that is none, to Check
		return false
	case head[1] == GSOUDPL4:
		return segments(n-HdrLen-headersEnd(head), size) > maxUDPSegments
	default:
		start := int(binary.LittleEndian.Uint16(head[6:]))
		options := headersEnd(head) - start - tcpMinLen
		return options+size < minTCPSegment
	}
}

// segments is how many of the given size a payload makes.
func segments(payload, size int) int {
	if size == 0 {
		return 1
	}
	return max((payload+size-1)/size, 1)
}

// headersEnd is the length of a super-frame's headers, with the shortest
// transport header if its length is not in head.
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

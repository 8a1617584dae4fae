package vnet

import "encoding/binary"

const (
	// MinWire is the length in bytes of the shortest Ethernet frame without its
	// frame check sequence: shorter frames are padded.
	MinWire = 60
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

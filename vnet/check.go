package vnet

import "errors"

// Findings of Check and of the queues about a frame. They are returned without wrapping, so
// that they can be compared and cost nothing.
var (
	ErrShort      = errors.New("frame is shorter than its virtio and Ethernet headers")
	ErrTooLong    = errors.New("frame is longer than 65535 bytes or than the buffer")
	ErrInvalid    = errors.New("frame cannot be described by a virtio header")
	ErrFiltered   = errors.New("frame is for somebody else")
	ErrTag        = errors.New("frame ends within its VLAN tags") // the first two; others are not needed
	ErrFlags      = errors.New("virtio header has unknown flags")
	ErrCsum       = errors.New("virtio header places the checksum outside the frame")
	ErrCsumStart  = errors.New("virtio header has the checksum begin in the Ethernet header")
	ErrCsumProto  = errors.New("virtio header asks for a checksum that does not match the packet's protocol")
	ErrGSOType    = errors.New("virtio header has an unknown segmentation type")
	ErrGSONoCsum  = errors.New("virtio header asks for segmentation without checksum")
	ErrGSOSize    = errors.New("virtio header has a segment size of zero")
	ErrGSOProto   = errors.New("virtio header asks for a segmentation that does not match the packet's protocol")
	ErrGSOHeaders = errors.New("super-frame does not contain its own headers")
	ErrHdrLen     = errors.New("virtio header claims more headers than the frame has bytes")
	// ErrMTU is the only finding about frames that were valid when they were sent: frames
	// that are on their way while the MTU is lowered.
	ErrMTU = errors.New("frame or segment exceeds the MTU")
)

// Check returns nil if frame, [virtio_net_hdr | Ethernet frame] from an untrusted peer, may be
// given to a netdevice with the given MTU in bytes, and otherwise the finding. It looks behind
// all VLAN tags. It reads nothing but frame, and neither changes nor keeps it.
//
// What a card does for the frame changes nothing in front of the transport header, except the
// lengths, the identification and the checksum of a super-frame's IP header, and in that header
// only the checksum and what differs between segments. So rules about tags, addresses, protocols
// and the messages of neighbour discovery have the same result for what the card sends.
//
// If the peer can still write to the memory of frame, the result is valid only for a copy. The
// caller then checks a copy of the frame, or of its beginning: see CheckHead.
//
// borrowed: frame, for the call.
func Check(frame []byte, mtu int) error { return CheckHead(frame, len(frame), mtu) }

// CheckHead is Check for a frame of size bytes of which only the beginning is available. A
// caller that checks a copy of the beginning, and writes this copy, writes what was checked,
// even if the original changes. The tags and the network header of a frame whose checksum is to
// be completed, and all headers of a super-frame, must be in head: others count as missing.
//
// borrowed: head, for the call.
func CheckHead(head []byte, size, mtu int) error {
	if len(head) < MinFrame {
		return ErrShort
	}
	if size > MaxFrame {
		return ErrTooLong
	}
	var h Header
	h.Decode(head)
	size -= HdrLen
	if h.Flags&^(FlagNeedsCsum|FlagDataValid) != 0 {
		return ErrFlags
	}
	if int(h.HdrLen) > size {
		return ErrHdrLen
	}
	if h.Flags&FlagNeedsCsum != 0 && int(h.CsumStart)+int(h.CsumOffset)+2 > size {
		return ErrCsum
	}
	l := LayersOf(head)
	if l.At > len(head) && l.Tags <= maxTags && !l.foreign {
		return ErrTag
	}
	l2 := l.At - HdrLen
	if h.Flags&FlagNeedsCsum != 0 && int(h.CsumStart) < l2 {
		return ErrCsumStart
	}
	if h.GSOType != GSONone {
		return checkGSO(&h, head, l, mtu)
	}
	if h.Flags&FlagNeedsCsum != 0 {
		t, ok := l.Transport(head)
		if !ok || !t.mayComplete(int(h.CsumStart), int(h.CsumOffset)) {
			return ErrCsumProto
		}
	}
	// One tag more than a plain frame has is always allowed, as in the kernel's
	// is_skb_forwardable. More than two tags count towards the MTU.
	if size > mtu+min(max(l2, EthLen+TagLen), EthLen+maxTags*TagLen) {
		return ErrMTU
	}
	return nil
}

// Breach reports whether no peer may send a frame about which Check returns this finding:
// docs/protocol.md, section 6. Frames with other findings are dropped.
func Breach(finding error) bool {
	switch finding {
	case ErrShort, ErrTooLong, ErrFlags, ErrCsum, ErrHdrLen:
		return true
	}
	return false
}

// anyMTU is larger than any frame or segment.
const anyMTU = 1 << 20

// Outgoing checks a frame that was read from a netdevice, before it is sent to a peer. It uses
// the rules that the peer uses, except for the MTU, which is that of the peer's netdevice. It
// returns the frame to send, or the finding.
//
// A frame that ends within its VLAN tags is padded with zeros, in the memory behind it, to the
// length to which a network card pads all shorter frames. A checksum that the peer would not
// accept, because it is not that of a protocol which Check finds, is completed here.
//
// borrowed: frame, which is what is returned.
func Outgoing(frame []byte) ([]byte, error) {
	switch err := Check(frame, anyMTU); err {
	case ErrTag:
		if cap(frame) < HdrLen+MinWire {
			return frame, err
		}
		n := len(frame)
		frame = frame[:HdrLen+MinWire]
		clear(frame[n:])
	case ErrCsumProto:
		var h Header
		h.Decode(frame)
		complete(frame[HdrLen:], &h)
		clear(frame[:HdrLen])
	default:
		return frame, err
	}
	return frame, Check(frame, anyMTU)
}

// OutgoingHead reports whether Outgoing accepts a frame of size bytes without changing it. It
// reads only the beginning of the frame, and may return false only because head is too short.
//
// borrowed: head, for the call.
func OutgoingHead(head []byte, size int) bool { return CheckHead(head, size, anyMTU) == nil }

// checkGSO is Check for super-frames. The checksum, if any, is already known to be inside the
// frame.
func checkGSO(h *Header, head []byte, l Layers, mtu int) error {
	l2, proto := l.At-HdrLen, l.Proto
	if l.foreign || l.Tags > maxTags {
		proto = 0 // the kernel does not look behind such tags
	}
	var want uint8
	csumOff := tcpCsumOff
	switch h.GSOType {
	case GSOTCPv4, GSOTCPv4 | GSOECN:
		want = protoTCP
		if proto != EtherIPv4 {
			return ErrGSOProto
		}
	case GSOTCPv6, GSOTCPv6 | GSOECN:
		want = protoTCP
		if proto != EtherIPv6 {
			return ErrGSOProto
		}
	case GSOUDPL4:
		want, csumOff = protoUDP, udpCsumOff
		if proto != EtherIPv4 && proto != EtherIPv6 {
			return ErrGSOProto
		}
	default:
		return ErrGSOType
	}
	if h.Flags&FlagNeedsCsum == 0 {
		return ErrGSONoCsum
	}
	if h.GSOSize == 0 {
		return ErrGSOSize
	}
	if int(h.CsumOffset) != csumOff {
		return ErrGSOProto
	}
	start := int(h.CsumStart)
	t, ok := l.Transport(head)
	switch {
	case !ok || t.At-HdrLen != start:
		return ErrGSOHeaders
	case t.Proto != want || t.Part && proto == EtherIPv6: // the kernel does not look behind that header
		return ErrGSOProto
	}
	headers := transportEnd(head[HdrLen:], start, want == protoTCP)
	if headers < 0 {
		return ErrGSOHeaders
	}
	if headers-l2+int(h.GSOSize) > mtu {
		return ErrMTU
	}
	return nil
}

// Longest returns the length in bytes of the longest Ethernet frame that a network card sends
// for a frame of size bytes that Check has accepted. All headers of the frame are in head.
//
// borrowed: head, for the call.
func Longest(head []byte, size int) int {
	var h Header
	h.Decode(head)
	if h.GSOType == GSONone {
		return size - HdrLen
	}
	end := transportEnd(head[HdrLen:], int(h.CsumStart), h.GSOType != GSOUDPL4)
	return min(end+int(h.GSOSize), size-HdrLen)
}

// transportEnd returns the offset behind the TCP or UDP header that begins at
// start, or -1 if it does not fit eth.
func transportEnd(eth []byte, start int, tcp bool) int {
	end := start + udpLen
	if tcp {
		if start+tcpMinLen > len(eth) {
			return -1
		}
		doff := int(eth[start+12]>>4) * 4
		if doff < tcpMinLen {
			return -1
		}
		end = start + doff
	}
	if end > len(eth) {
		return -1
	}
	return end
}

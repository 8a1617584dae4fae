package vnet

import (
	"encoding/binary"
	"errors"
)

// What Check and the queues find wrong with a frame. They are returned bare,
// so that they can be compared and cost nothing.
var (
	ErrShort      = errors.New("frame is shorter than its virtio and Ethernet headers")
	ErrTooLong    = errors.New("frame is longer than 65535 bytes or than the buffer")
	ErrInvalid    = errors.New("frame cannot be described by a virtio header")
	ErrFiltered   = errors.New("frame is for somebody else")
	ErrTag        = errors.New("frame ends within its VLAN tags")
	ErrFlags      = errors.New("virtio header has unknown flags")
	ErrCsum       = errors.New("virtio header places the checksum outside the frame")
	ErrCsumStart  = errors.New("virtio header has the checksum begin in the Ethernet header")
	ErrGSOType    = errors.New("virtio header has an unknown segmentation type")
	ErrGSONoCsum  = errors.New("virtio header asks for segmentation without checksum")
	ErrGSOSize    = errors.New("virtio header has a segment size of zero")
	ErrGSOProto   = errors.New("virtio header asks for a segmentation that does not match the packet's protocol")
	ErrGSOHeaders = errors.New("super-frame does not contain its own headers")
	ErrHdrLen     = errors.New("virtio header claims more headers than the frame has bytes")
	// ErrMTU is the only finding about frames that were good when they were
	// sent: those on their way while the MTU is being lowered.
	ErrMTU = errors.New("frame or segment exceeds the MTU")
)

const (
	protoTCP   = 6
	protoUDP   = 17
	tcpCsumOff = 16
	udpCsumOff = 6
	tcpMinLen  = 20
	udpLen     = 8
)

// Check reports whether frame, [virtio_net_hdr | Ethernet frame] from a peer
// that is not trusted, may be given to a netdevice with the given MTU in bytes.
// It looks through up to two VLAN tags. It reads only frame and neither
// changes nor keeps it.
//
// The peer may still be able to write to the memory of frame; then the result
// holds only for who copies the frame first, or its beginning: see CheckHead.
//
// borrowed: frame, for the call.
func Check(frame []byte, mtu int) error { return CheckHead(frame, len(frame), mtu) }

// CheckHead is Check for a frame of size bytes of which only the beginning is
// there. Who judges a copy of that writes what was judged, whatever becomes of
// the original. Headers of a super-frame that are not in head are not there.
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
	eth, size := head[HdrLen:], size-HdrLen
	if h.Flags&^(FlagNeedsCsum|FlagDataValid) != 0 {
		return ErrFlags
	}
	if int(h.HdrLen) > size {
		return ErrHdrLen
	}
	if h.Flags&FlagNeedsCsum != 0 && int(h.CsumStart)+int(h.CsumOffset)+2 > size {
		return ErrCsum
	}
	l2, proto := network(eth)
	if l2 > len(eth) {
		return ErrTag
	}
	if h.Flags&FlagNeedsCsum != 0 && int(h.CsumStart) < l2 {
		return ErrCsumStart
	}
	if h.GSOType == GSONone {
		// A tag more than a plain frame has is always let through, as the
		// kernel's is_skb_forwardable does.
		if size > mtu+max(l2, EthLen+TagLen) {
			return ErrMTU
		}
		return nil
	}
	return checkGSO(&h, eth, l2, proto, mtu)
}

// Breach reports whether a frame that Check finds that of is one that no peer
// may send: docs/protocol.md, section 6. All others are dropped.
func Breach(finding error) bool {
	switch finding {
	case ErrShort, ErrTooLong, ErrFlags, ErrCsum, ErrHdrLen:
		return true
	}
	return false
}

// anyMTU is larger than any frame or segment.
const anyMTU = 1 << 20

// minEth is the shortest Ethernet frame on a cable, in bytes without its FCS
// (ETH_ZLEN).
const minEth = 60

// Outgoing judges a frame that was read from a netdevice, before it is given to
// a peer, by the rules by which the peer does, but for the MTU: that is the
// peer's. It returns the frame as it can be given, or the finding.
//
// A frame that ends within its VLAN tags is padded with zeros, in the memory
// behind it, to the length that a card gives all frames that are shorter.
//
// borrowed: frame, which is what is returned.
func Outgoing(frame []byte) ([]byte, error) {
	err := Check(frame, anyMTU)
	if err != ErrTag {
		return frame, err
	}
	if cap(frame) < HdrLen+minEth {
		return frame, err
	}
	n := len(frame)
	frame = frame[:HdrLen+minEth]
	clear(frame[n:])
	return frame, Check(frame, anyMTU)
}

// OutgoingHead reports whether Outgoing lets a frame of size bytes pass, and leaves it as
// it is, by its beginning alone. Of a frame that it does not let pass there may be too
// little in head.
//
// borrowed: head, for the call.
func OutgoingHead(head []byte, size int) bool { return CheckHead(head, size, anyMTU) == nil }

// checkGSO is Check for super-frames whose checksum, if any, lies inside.
func checkGSO(h *Header, eth []byte, l2 int, proto uint16, mtu int) error {
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
	if start > len(eth) {
		return ErrGSOHeaders
	}
	if err := checkNetwork(eth, l2, start, proto, want); err != nil {
		return err
	}
	headers := transportEnd(eth, start, want == protoTCP)
	if headers < 0 {
		return ErrGSOHeaders
	}
	if headers-l2+int(h.GSOSize) > mtu {
		return ErrMTU
	}
	return nil
}

// Longest is the length in bytes of the longest Ethernet frame that a card sends
// for a frame of size bytes that Check lets pass, of which head has the headers.
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

// checkNetwork checks that an IP header lies between l2 and start and, where
// that can be seen without walking extension headers, that transport protocol
// want follows it.
func checkNetwork(eth []byte, l2, start int, proto uint16, want uint8) error {
	ip := eth[l2:start]
	if proto == EtherIPv4 {
		if len(ip) < 20 || ip[0]>>4 != 4 || int(ip[0]&15)*4 != len(ip) {
			return ErrGSOHeaders
		}
		if ip[9] != want {
			return ErrGSOProto
		}
		return nil
	}
	if len(ip) < ipv6Fixed || ip[0]>>4 != 6 {
		return ErrGSOHeaders
	}
	if len(ip) == ipv6Fixed && ip[6] != want {
		return ErrGSOProto
	}
	return nil
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

// network returns the length of the Ethernet header of eth with up to two VLAN
// tags, and the EtherType behind them. The length can exceed that of eth.
func network(eth []byte) (l2 int, proto uint16) {
	l2 = EthLen
	proto = binary.BigEndian.Uint16(eth[12:])
	for range maxTags {
		if proto != EtherVLAN && proto != EtherQinQ {
			break
		}
		l2 += TagLen
		if l2 > len(eth) {
			break
		}
		proto = binary.BigEndian.Uint16(eth[l2-2:])
	}
	return l2, proto
}

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
	ErrFlags      = errors.New("virtio header has unknown flags")
	ErrCsum       = errors.New("virtio header places the checksum outside the packet")
	ErrGSOType    = errors.New("virtio header has an unknown segmentation type")
	ErrGSONoCsum  = errors.New("virtio header asks for segmentation without checksum")
	ErrGSOSize    = errors.New("virtio header has a segment size of zero")
	ErrGSOProto   = errors.New("virtio header asks for a segmentation that does not match the packet's protocol")
	ErrGSOHeaders = errors.New("super-frame does not contain its own headers")
	ErrHdrLen     = errors.New("virtio header claims more headers than the frame has bytes")
	// ErrMTU is the only finding that an honest peer can cause: frames on
	// their way while the MTU is being lowered.
	ErrMTU = errors.New("frame or segment exceeds the MTU")
)

const (
	etherIPv4  = 0x0800
	etherIPv6  = 0x86dd
	etherVLAN  = 0x8100
	etherQinQ  = 0x88a8
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
// is only as good as the kernel's own checks, which Check repeats earlier to
// tell a peer that misbehaves from a device that refuses, and completes where
// the kernel has none: no device compares a super-frame's segments to its MTU.
//
// borrowed: frame, for the call.
func Check(frame []byte, mtu int) error {
	if len(frame) < MinFrame {
		return ErrShort
	}
	if len(frame) > MaxFrame {
		return ErrTooLong
	}
	var h Header
	h.Decode(frame)
	eth := frame[HdrLen:]
	l2, proto := network(eth)
	if l2 > len(eth) {
		return ErrShort
	}
	if h.Flags&^(FlagNeedsCsum|FlagDataValid) != 0 {
		return ErrFlags
	}
	if int(h.HdrLen) > len(eth) {
		return ErrHdrLen
	}
	start := int(h.CsumStart)
	if h.Flags&FlagNeedsCsum != 0 && (start < l2 || start+int(h.CsumOffset)+2 > len(eth)) {
		return ErrCsum
	}
	if h.GSOType == GSONone {
		// A tag more than a plain frame has is always let through, as the
		// kernel's is_skb_forwardable does.
		if len(eth) > mtu+max(l2, EthLen+TagLen) {
			return ErrMTU
		}
		return nil
	}
	return checkGSO(&h, eth, l2, proto, mtu)
}

// checkGSO is Check for super-frames whose checksum, if any, lies inside.
func checkGSO(h *Header, eth []byte, l2 int, proto uint16, mtu int) error {
	var want uint8
	csumOff := tcpCsumOff
	switch h.GSOType {
	case GSOTCPv4, GSOTCPv4 | GSOECN:
		want = protoTCP
		if proto != etherIPv4 {
			return ErrGSOProto
		}
	case GSOTCPv6, GSOTCPv6 | GSOECN:
		want = protoTCP
		if proto != etherIPv6 {
			return ErrGSOProto
		}
	case GSOUDPL4:
		want, csumOff = protoUDP, udpCsumOff
		if proto != etherIPv4 && proto != etherIPv6 {
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

// checkNetwork checks that an IP header lies between l2 and start and, where
// that can be seen without walking extension headers, that transport protocol
// want follows it.
func checkNetwork(eth []byte, l2, start int, proto uint16, want uint8) error {
	ip := eth[l2:start]
	if proto == etherIPv4 {
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
		if proto != etherVLAN && proto != etherQinQ {
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

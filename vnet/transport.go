package vnet

import "encoding/binary"

// Numbers of protocols: of IPv4, and next headers of IPv6.
const (
	protoHopByHop = 0
	protoIPv4     = 4 // in IP
	protoTCP      = 6
	protoUDP      = 17
	protoIPv6     = 41 // in IP
	protoRouting  = 43
	protoFragment = 44
	protoGRE      = 47
	protoICMPv6   = 58
	protoOptions  = 60
	protoSCTP     = 132
)

// Sizes of headers in bytes, those of which the length varies without options.
const (
	ipv4Min       = 20
	ipv6Fixed     = 40
	extensionUnit = 8
	tcpMinLen     = 20
	udpLen        = 8
	greMin        = 4
)

// maxExtensions is the largest number of extension headers behind which a protocol is looked for.
const maxExtensions = 7

// Where the checksum of a protocol is, from the beginning of its header. GRE has one only with the
// flag for it.
const (
	tcpCsumOff  = 16
	udpCsumOff  = 6
	icmpCsumOff = 2
	sctpCsumOff = 8
	greCsumOff  = 4
)

// Transport describes what follows the network header of an IP packet, with its options or
// extension headers.
type Transport struct {
	Proto uint8 // the protocol
	At    int   // offset of its header in [virtio_net_hdr | frame]
	Part  bool  // the packet is a fragment, or has IPv6's header of one
	Later bool  // it is not the first fragment, and has no header of the protocol
}

// Transport finds the end of the network header behind the tags. ok is false if the packet is not
// IP, or if head ends before that is clear, or if there are more than seven extension headers.
//
// borrowed: head, which LayersOf has examined, for the call.
func (l Layers) Transport(head []byte) (t Transport, ok bool) {
	if l.At > len(head) {
		return t, false
	}
	p := head[l.At:]
	switch {
	case l.Proto == EtherIPv4 && len(p) >= ipv4Min && p[0]>>4 == 4:
		size := int(p[0]&15) * 4
		if size < ipv4Min || size > len(p) {
			return t, false
		}
		t.Proto, t.At = p[9], l.At+size
		field := binary.BigEndian.Uint16(p[6:])
		t.Part, t.Later = field&0x3fff != 0, field&0x1fff != 0
		return t, true
	case l.Proto == EtherIPv6 && len(p) >= ipv6Fixed && p[0]>>4 == 6:
		t.Proto, t.At = p[6], l.At+ipv6Fixed
		return t, t.skipExtensions(head)
	}
	return t, false
}

// skipExtensions skips the extension headers at t.At. What follows the header of a later fragment
// is not looked at.
func (t *Transport) skipExtensions(head []byte) bool {
	for range maxExtensions + 1 {
		size := extensionUnit
		switch t.Proto {
		case protoHopByHop, protoRouting, protoOptions, protoFragment:
		default:
			return true
		}
		rest := head[t.At:]
		if len(rest) < extensionUnit {
			return false
		}
		if t.Proto == protoFragment {
			t.Part, t.Later = true, binary.BigEndian.Uint16(rest[2:])>>3 != 0
		} else {
			size += extensionUnit * int(rest[1])
		}
		if len(rest) < size {
			return false
		}
		t.Proto, t.At = rest[0], t.At+size
		if t.Later {
			return true
		}
	}
	return false
}

// mayComplete reports whether a card may complete a checksum of the packet that begins at start and
// goes to offset from there, both as in a virtio header. The sum goes into the header of the
// transport protocol, or into the contents of a tunnel, behind the headers of it. Fragments have no
// checksum of their own.
func (t *Transport) mayComplete(start, offset int) bool {
	behind := start + HdrLen - t.At
	switch {
	case t.Part || behind < 0:
		return false
	case behind > 0:
		return behind >= t.tunnel() && isInnerOffset(offset)
	}
	switch t.Proto {
	case protoTCP:
		return offset == tcpCsumOff
	case protoUDP:
		return offset == udpCsumOff
	case protoICMPv6:
		return offset == icmpCsumOff
	case protoSCTP:
		return offset == sctpCsumOff
	case protoGRE:
		return offset == greCsumOff
	}
	return false
}

// notTunnel is larger than any frame.
const notTunnel = 1 << 20

// tunnel returns the size of the shortest header of a protocol in which Linux sends packets whose
// checksum it leaves to the card. UDP carries VXLAN, Geneve and others.
func (t *Transport) tunnel() int {
	switch t.Proto {
	case protoUDP:
		return udpLen
	case protoGRE:
		return greMin
	case protoIPv4:
		return ipv4Min
	case protoIPv6:
		return ipv6Fixed
	}
	return notTunnel
}

func isInnerOffset(offset int) bool {
	switch offset {
	case tcpCsumOff, udpCsumOff, icmpCsumOff, sctpCsumOff:
		return true
	}
	return false
}

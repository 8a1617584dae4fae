package guard

import (
	"encoding/binary"
	"net/netip"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// A protocol of IPv4, and a next header of IPv6.
const (
	protoUDP    = 17
	protoICMPv6 = 58
)

// Types of ICMPv6 messages (RFC 4861).
const (
	icmpRouterAdvert   = 134
	icmpNeighborAsk    = 135
	icmpNeighborAdvert = 136
	icmpRedirect       = 137
)

const (
	arpLen  = 28 // for Ethernet and IPv4
	ipv4Len = 20
)

// mayBeFrom reports whether a frame from mac comes from one of the addresses ips, and does
// not claim other addresses. Frames that are neither IP nor ARP do not pass, because they
// could contain IP packets. Frames whose headers end, or are not in head, before that is
// clear do not pass either.
func mayBeFrom(ips []netip.Prefix, head []byte, l vnet.Layers, mac protocol.MAC) bool {
	if l.At > len(head) {
		return false
	}
	p := head[l.At:]
	switch l.Proto {
	case vnet.EtherIPv4:
		return ipv4From(ips, p)
	case vnet.EtherIPv6:
		return ipv6From(ips, head, l, mac)
	case vnet.EtherARP, vnet.EtherRARP:
		return arpFrom(ips, p, mac)
	default:
		return false
	}
}

func among(ips []netip.Prefix, a netip.Addr) bool {
	for i := range ips {
		if ips[i].Contains(a) {
			return true
		}
	}
	return false
}

// ipv4From checks an IPv4 packet. A DHCP client without an address may send to a server.
func ipv4From(ips []netip.Prefix, p []byte) bool {
	if len(p) < ipv4Len || p[0]>>4 != 4 {
		return false
	}
	from := netip.AddrFrom4([4]byte(p[12:]))
	return among(ips, from) || from.IsUnspecified() && p[9] == protoUDP && binary.BigEndian.Uint32(p[16:]) == 0xffffffff
}

// arpFrom checks a message of ARP or RARP: its sender must be that of the frame, with a
// permitted address, or none yet (RFC 5227).
func arpFrom(ips []netip.Prefix, p []byte, mac protocol.MAC) bool {
	// Ethernet, IPv4, and the lengths of their addresses.
	if len(p) < arpLen || binary.BigEndian.Uint32(p) != 0x00010800 || p[4] != 6 || p[5] != 4 ||
		protocol.MAC(p[8:14]) != mac {
		return false
	}
	from := netip.AddrFrom4([4]byte(p[14:]))
	return from.IsUnspecified() || among(ips, from)
}

// ipv6From checks an IPv6 packet: its source, and the address that neighbour discovery
// claims or probes. Router advertisements and redirects do not pass.
func ipv6From(ips []netip.Prefix, head []byte, l vnet.Layers, mac protocol.MAC) bool {
	t, ok := l.Transport(head)
	if !ok {
		return false
	}
	from := netip.AddrFrom16([16]byte(head[l.At+8:]))
	if !from.IsUnspecified() && !isHere(ips, from, mac) {
		return false
	}
	// A later fragment is not examined, because receivers ignore neighbour discovery in
	// fragments (RFC 6980).
	if t.Later || t.Proto != protoICMPv6 {
		return !from.IsUnspecified()
	}
	kind := head[t.At:]
	if len(kind) == 0 {
		return false
	}
	switch kind[0] {
	case icmpRouterAdvert, icmpRedirect:
		return false
	case icmpNeighborAdvert:
		return len(kind) >= 24 && isHere(ips, netip.AddrFrom16([16]byte(kind[8:])), mac)
	case icmpNeighborAsk: // without a source: duplicate address detection
		return !from.IsUnspecified() || len(kind) >= 24 && isHere(ips, netip.AddrFrom16([16]byte(kind[8:])), mac)
	default:
		return true
	}
}

// isHere reports whether a is one of the addresses, or the link-local address derived from
// mac (RFC 4291, appendix A).
func isHere(ips []netip.Prefix, a netip.Addr, mac protocol.MAC) bool {
	made := [16]byte{0xfe, 0x80, 8: mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]}
	return a.As16() == made || among(ips, a)
}

package session

import (
	"net"
	"net/netip"
)

// source is where connections come from, as far as one machine can choose it:
// an IPv4 address, or the network of an IPv6 address. The zero source is that of
// connections which have no such address.
type source = netip.Prefix

// interfaceBits are those of an IPv6 address that its owner chooses (RFC 4291
// §2.5.1).
const interfaceBits = 64

func sourceOf(addr net.Addr) source {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return source{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	// Neighbours on a link share the network of these.
	if ip.Is6() && !ip.IsLinkLocalUnicast() {
		bits -= interfaceBits
	}
	p, err := ip.Prefix(bits)
	if err != nil {
		return source{}
	}
	return p
}

package session

import (
	"net"
	"net/netip"
)

// source is where connections come from: the networks that an address is in, the
// widest first. The last one is what one machine can choose its address from: an
// IPv4 address, or an IPv6 address without its interface part. The wider ones are
// what one site has: whoever has a /48 of IPv6 addresses has 65,536 networks of
// machines. The zero source is that of connections which have no such address.
type source [3]netip.Prefix

// The bits that the networks of a source have. An IPv6 address has an interface
// part of 64 (RFC 4291 §2.5.1); a site gets a /48 or a /56 (RFC 6177).
var (
	bits4 = [len(source{})]int{16, 24, 32}
	bits6 = [len(source{})]int{48, 56, 64}
	// Neighbours on a link share all but the interface part.
	bitsOfLink = [len(source{})]int{10, 64, 128}
)

func sourceOf(addr net.Addr) source {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return source{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := bits6
	switch {
	case ip.Is4():
		bits = bits4
	case ip.IsLinkLocalUnicast():
		bits = bitsOfLink
	}
	var s source
	for i, n := range bits {
		p, err := ip.Prefix(n)
		if err != nil {
			return source{}
		}
		s[i] = p
	}
	return s
}

// machine is the narrowest network of s.
func (s source) machine() netip.Prefix { return s[len(s)-1] }

// valid reports whether s is the source of an address.
func (s source) valid() bool { return s.machine().IsValid() }

package limit

import (
	"crypto/sha256"
	"net"
	"net/netip"
)

// Key identifies the peer that a limit applies to. It is comparable.
type Key struct {
	public  [sha256.Size]byte
	machine netip.Prefix
}

// PublicKey returns the Key of a peer that has a public key with this hash.
func PublicKey(hash [sha256.Size]byte) Key { return Key{public: hash} }

// Machine returns the Key of a machine, for peers without public keys. All machines without
// an IP address have the same Key.
func Machine(addr net.Addr) Key { return Key{machine: NetworksOf(addr).Machine()} }

// IsMachine reports whether k is the Key of a machine.
func (k Key) IsMachine() bool { return k.public == [sha256.Size]byte{} }

// Networks has the networks that an address is in, the widest first. The last one is the
// network in which one machine can choose its address: an IPv4 address, or an IPv6 address
// without its interface part. The wider ones can belong to one site: a /48 of IPv6 addresses
// has 65,536 networks of machines. A connection without an IP address has the zero Networks.
type Networks [3]netip.Prefix

// The lengths of the prefixes. An IPv6 address has an interface part of 64 bits
// (RFC 4291 §2.5.1); a site gets a /48 or a /56 (RFC 6177).
var (
	bits4 = [len(Networks{})]int{16, 24, 32}
	bits6 = [len(Networks{})]int{48, 56, 64}
	// Link-local addresses of a link differ in the interface part only.
	bitsOfLink = [len(Networks{})]int{10, 64, 128}
)

// NetworksOf returns the networks of a TCP address.
func NetworksOf(addr net.Addr) Networks {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return Networks{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := bits6
	switch {
	case ip.Is4():
		bits = bits4
	case ip.IsLinkLocalUnicast():
		bits = bitsOfLink
	}
	var n Networks
	for i, length := range bits {
		p, err := ip.Prefix(length)
		if err != nil {
			return Networks{}
		}
		n[i] = p
	}
	return n
}

// Machine returns the narrowest network of n.
func (n Networks) Machine() netip.Prefix { return n[len(n)-1] }

// Valid reports whether n are the networks of an address.
func (n Networks) Valid() bool { return n.Machine().IsValid() }

package protocol

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"
)

// Group is a multicast or broadcast Ethernet address, 6 bytes.
type Group [6]byte

// String is the address in colon notation.
func (g Group) String() string { return net.HardwareAddr(g[:]).String() }

// Valid reports whether the address is a group address.
func (g Group) Valid() bool { return g[0]&1 == 1 }

// MarshalText returns String, so that the address is text in JSON and YAML.
func (g Group) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText parses the usual notations of a 48-bit address. It returns an error if the address
// is not a group address.
func (g *Group) UnmarshalText(text []byte) error {
	hw, err := net.ParseMAC(string(text))
	if err != nil || len(hw) != len(g) || !Group(hw).Valid() {
		return fmt.Errorf("parse group address %q: %w", text, ErrGroup)
	}
	*g = Group(hw)
	return nil
}

// ReceiveFilter selects the frames of the LAN that the host receives in addition to frames to its
// MAC address and to the broadcast address. It is the data of CfgFilter: 32 bits of flags, the
// numbers of unicast and multicast addresses in 16 bits each, and the addresses.
type ReceiveFilter struct {
	Promisc   bool    `json:"promisc"`  // all frames of the LAN
	AllMulti  bool    `json:"allmulti"` // all multicast frames
	Unicast   []MAC   `json:"unicast"`  // besides the host's own address
	Multicast []Group `json:"multicast"`
}

// MaxFilterAddresses is the largest number of addresses of a ReceiveFilter, of both kinds together.
const MaxFilterAddresses = (MaxCfgData - filterSize) / addressSize

const (
	filterSize  = 8 // before the addresses
	addressSize = 6

	filterPromisc  = 1 << 0
	filterAllMulti = 1 << 1
)

// Equal reports whether f and g have the same flags and the same addresses in
// the same order.
func (f ReceiveFilter) Equal(g ReceiveFilter) bool {
	return f.Promisc == g.Promisc && f.AllMulti == g.AllMulti &&
		slices.Equal(f.Unicast, g.Unicast) && slices.Equal(f.Multicast, g.Multicast)
}

// DecodeReceiveFilter decodes the data of CfgFilter. The addresses are copied.
func DecodeReceiveFilter(data []byte) (ReceiveFilter, error) {
	if len(data) < filterSize {
		return ReceiveFilter{}, fmt.Errorf("%v: %d bytes of data, must be at least %d: %w", CfgFilter, len(data), filterSize,
			ErrShort)
	}
	flags := binary.BigEndian.Uint32(data)
	if flags&^(filterPromisc|filterAllMulti) != 0 {
		return ReceiveFilter{}, fmt.Errorf("%v: flags %#x: %w", CfgFilter, flags, ErrReserved)
	}
	unicast := int(binary.BigEndian.Uint16(data[4:]))
	multicast := int(binary.BigEndian.Uint16(data[6:]))
	if n := unicast + multicast; n > MaxFilterAddresses {
		return ReceiveFilter{}, fmt.Errorf("%v: %d addresses, at most %d: %w", CfgFilter, n, MaxFilterAddresses, ErrCount)
	}
	if err := dataSize(CfgFilter, data, filterSize+addressSize*(unicast+multicast)); err != nil {
		return ReceiveFilter{}, err
	}
	f := ReceiveFilter{Promisc: flags&filterPromisc != 0, AllMulti: flags&filterAllMulti != 0}
	for a := range slices.Chunk(data[filterSize:], addressSize) {
		if len(f.Unicast) < unicast {
			m := MAC(a)
			if !m.Valid() {
				return ReceiveFilter{}, fmt.Errorf("%v: %v among the unicast addresses: %w", CfgFilter, m, ErrMAC)
			}
			f.Unicast = append(f.Unicast, m)
			continue
		}
		g := Group(a)
		if !g.Valid() {
			return ReceiveFilter{}, fmt.Errorf("%v: %v among the multicast addresses: %w", CfgFilter, g, ErrGroup)
		}
		f.Multicast = append(f.Multicast, g)
	}
	return f, nil
}

// AppendReceiveFilter appends the data of CfgFilter, with at most
// MaxFilterAddresses addresses.
func AppendReceiveFilter(dst []byte, f ReceiveFilter) []byte {
	var flags uint32
	if f.Promisc {
		flags |= filterPromisc
	}
	if f.AllMulti {
		flags |= filterAllMulti
	}
	dst = binary.BigEndian.AppendUint32(dst, flags)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(f.Unicast)))
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(f.Multicast)))
	for _, m := range f.Unicast {
		dst = append(dst, m[:]...)
	}
	for _, g := range f.Multicast {
		dst = append(dst, g[:]...)
	}
	return dst
}

package protocol

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"strings"
)

// MAC is a unicast Ethernet address, the data of CfgMAC: 6 bytes.
type MAC [6]byte

// ParseMAC parses the usual notations of a 48-bit address.
func ParseMAC(s string) (MAC, error) {
	hw, err := net.ParseMAC(s)
	if err != nil {
		return MAC{}, fmt.Errorf("parse MAC address %q: %w", s, ErrMAC)
	}
	m, err := DecodeMAC(hw)
	if err != nil {
		return MAC{}, fmt.Errorf("parse MAC address %q: %w", s, err)
	}
	return m, nil
}

// String is the address in colon notation.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// Valid reports whether an interface can have the address: not zero, and not
// a multicast or broadcast address.
func (m MAC) Valid() bool { return m != MAC{} && m[0]&1 == 0 }

// MarshalText is String, so that the address is text in JSON and YAML.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText is ParseMAC.
func (m *MAC) UnmarshalText(text []byte) error {
	mac, err := ParseMAC(string(text))
	if err != nil {
		return err
	}
	*m = mac
	return nil
}

// DecodeMAC decodes the data of CfgMAC and refuses an address that is not
// Valid.
func DecodeMAC(data []byte) (MAC, error) {
	if err := dataSize(CfgMAC, data, 6); err != nil {
		return MAC{}, err
	}
	m := MAC(data)
	if !m.Valid() {
		return MAC{}, fmt.Errorf("%v: %w", m, ErrMAC)
	}
	return m, nil
}

// AppendMAC appends the data of CfgMAC.
func AppendMAC(dst []byte, m MAC) []byte { return append(dst, m[:]...) }

// The range of an MTU: the smallest that IPv4 requires (RFC 791), and the
// largest of a Linux netdevice of Ethernet type.
const (
	MinMTU = 68
	MaxMTU = 65535
)

// DecodeMTU decodes the data of CfgMTU: the largest payload of an Ethernet
// frame in bytes, 32 bits.
func DecodeMTU(data []byte) (int, error) {
	if err := dataSize(CfgMTU, data, 4); err != nil {
		return 0, err
	}
	mtu := binary.BigEndian.Uint32(data)
	if mtu < MinMTU || mtu > MaxMTU {
		return 0, fmt.Errorf("MTU %d, must be %d to %d: %w", mtu, MinMTU, MaxMTU, ErrSize)
	}
	return int(mtu), nil
}

// AppendMTU appends the data of CfgMTU.
func AppendMTU(dst []byte, mtu int) []byte { return binary.BigEndian.AppendUint32(dst, uint32(mtu)) }

// LinkState is the state of the NIC's link, the data of CfgLinkState: 32 bits
// of flags (bit 0: up) and 32 bits of speed.
type LinkState struct {
	Up    bool
	Speed uint32 // Mbit/s; 0 when unknown
}

const linkUp = 1 << 0

// DecodeLinkState decodes the data of CfgLinkState.
func DecodeLinkState(data []byte) (LinkState, error) {
	if err := dataSize(CfgLinkState, data, 8); err != nil {
		return LinkState{}, err
	}
	flags := binary.BigEndian.Uint32(data)
	if flags&^linkUp != 0 {
		return LinkState{}, fmt.Errorf("link state flags %#x: %w", flags, ErrReserved)
	}
	return LinkState{Up: flags&linkUp != 0, Speed: binary.BigEndian.Uint32(data[4:])}, nil
}

// AppendLinkState appends the data of CfgLinkState.
func AppendLinkState(dst []byte, l LinkState) []byte {
	var flags uint32
	if l.Up {
		flags |= linkUp
	}
	dst = binary.BigEndian.AppendUint32(dst, flags)
	return binary.BigEndian.AppendUint32(dst, l.Speed)
}

// DecodeKeepAlive checks the data of CfgKeepAlive, which is empty.
func DecodeKeepAlive(data []byte) error { return dataSize(CfgKeepAlive, data, 0) }

// Offloads is a set of things that a sender may leave to the far NIC, the data
// of CfgOffloads: 32 bits. Both sides use what both have; a bit that one does
// not know is one that it does not have.
type Offloads uint32

// The offloads. Each name says what the virtio_net_hdr of a frame may ask for.
const (
	OffloadChecksum Offloads = 1 << iota // finish an IP transport checksum
	OffloadTSO4                          // segment TCP over IPv4
	OffloadTSO6                          // segment TCP over IPv6
	OffloadTSOECN                        // segment TCP with ECN's CWR set
	OffloadUSO                           // segment UDP over IPv4 and IPv6
)

// KnownOffloads are all offloads that this version has a name for.
const KnownOffloads = OffloadChecksum | OffloadTSO4 | OffloadTSO6 | OffloadTSOECN | OffloadUSO

var offloadNames = [...]string{"checksum", "tso4", "tso6", "tso-ecn", "uso"}

// Names lists the known offloads of the set, in the order of their bits.
func (o Offloads) Names() []string {
	var names []string
	for i, name := range offloadNames {
		if o&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// String lists the known offloads of the set, or says "none".
func (o Offloads) String() string {
	names := o.Names()
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ",")
}

// OffloadByName is the offload of that name, or no offload for an unknown one.
func OffloadByName(name string) Offloads {
	for i, n := range offloadNames {
		if n == name {
			return 1 << i
		}
	}
	return 0
}

// DecodeOffloads decodes the data of CfgOffloads. Bits without a name are kept.
func DecodeOffloads(data []byte) (Offloads, error) {
	if err := dataSize(CfgOffloads, data, 4); err != nil {
		return 0, err
	}
	return Offloads(binary.BigEndian.Uint32(data)), nil
}

// AppendOffloads appends the data of CfgOffloads.
func AppendOffloads(dst []byte, o Offloads) []byte {
	return binary.BigEndian.AppendUint32(dst, uint32(o))
}

// MarshalJSON encodes the set as the list of its names.
func (o Offloads) MarshalJSON() ([]byte, error) {
	names := o.Names()
	if names == nil {
		names = []string{} // a list also when it is empty, never null
	}
	return json.Marshal(names)
}

// UnmarshalJSON decodes a list of names and ignores those it does not know.
func (o *Offloads) UnmarshalJSON(b []byte) error {
	var names []string
	if err := json.Unmarshal(b, &names); err != nil {
		return fmt.Errorf("list of offloads: %w", err)
	}
	*o = 0
	for _, name := range names {
		*o |= OffloadByName(name)
	}
	return nil
}

func dataSize(t CfgType, data []byte, want int) error {
	switch {
	case len(data) < want:
		return fmt.Errorf("%v: %d bytes of data, must be %d: %w", t, len(data), want, ErrShort)
	case len(data) > want:
		return fmt.Errorf("%v: %d bytes of data, must be %d: %w", t, len(data), want, ErrTrailing)
	}
	return nil
}

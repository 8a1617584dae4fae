package protocol

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"net"
	"slices"
	"strings"

	"github.com/splitnic/splitnic/internal/printable"
	"github.com/splitnic/splitnic/vnet"
)

// MAC is a unicast Ethernet address, the data of CfgMAC: 6 bytes.
type MAC [6]byte

// ParseMAC parses the usual notations of a 48-bit address, if it is Valid.
func ParseMAC(s string) (MAC, error) {
	if hw, err := net.ParseMAC(s); err == nil && len(hw) == len(MAC{}) && MAC(hw).Valid() {
		return MAC(hw), nil
	}
	return MAC{}, fmt.Errorf("parse MAC address %q: %w of six bytes, such as 02:00:00:00:00:01", s, ErrMAC)
}

// String is the address in colon notation.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// Valid reports whether a network interface can have the address: it is not zero, and no multicast
// or broadcast address.
func (m MAC) Valid() bool { return m != MAC{} && m[0]&1 == 0 }

// MarshalText returns String, so that the address is text in JSON and YAML.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText parses the text with ParseMAC.
func (m *MAC) UnmarshalText(text []byte) error {
	mac, err := ParseMAC(string(text))
	if err != nil {
		return err
	}
	*m = mac
	return nil
}

// DecodeMAC decodes the data of CfgMAC. It returns an error if the address is not Valid.
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

// Sent is the number of messages sent on a data channel in mode send-uc. It is the data of CfgSent:
// the channel in 32 bits and the sequence number in 64.
type Sent struct {
	Channel uint32 // data channel, from 1
	Next    uint64 // sequence number of the next SendData
}

// DecodeSent decodes the data of CfgSent.
func DecodeSent(data []byte) (Sent, error) {
	if err := dataSize(CfgSent, data, 12); err != nil {
		return Sent{}, err
	}
	s := Sent{Channel: binary.BigEndian.Uint32(data), Next: binary.BigEndian.Uint64(data[4:])}
	if s.Channel == 0 || s.Channel > math.MaxUint16 {
		return Sent{}, fmt.Errorf("%v: data channel %d: %w", CfgSent, s.Channel, ErrChannel)
	}
	return s, nil
}

// AppendSent appends the data of CfgSent.
func AppendSent(dst []byte, s Sent) []byte {
	dst = binary.BigEndian.AppendUint32(dst, s.Channel)
	return binary.BigEndian.AppendUint64(dst, s.Next)
}

// DecodeOffloads decodes the data of CfgOffloads, 32 bits: the offloads that a sender may leave to
// the NIC of the peer. Both sides use the offloads that both have. Unknown bits are kept; they are
// offloads that this side does not have.
func DecodeOffloads(data []byte) (vnet.Offloads, error) {
	if err := dataSize(CfgOffloads, data, 4); err != nil {
		return 0, err
	}
	return vnet.Offloads(binary.BigEndian.Uint32(data)), nil
}

// AppendOffloads appends the data of CfgOffloads.
func AppendOffloads(dst []byte, o vnet.Offloads) []byte {
	return binary.BigEndian.AppendUint32(dst, uint32(o))
}

func dataSize(t CfgType, data []byte, want int) error {
	if err := exactly(data, want); err != nil {
		return fmt.Errorf("%v: %w", t, err)
	}
	return nil
}

// MaxRefusal is the largest number of bytes of a refusal.
const MaxRefusal = 512

// AppendSubject appends the data of CfgRefusal, 32 bits: the type of the requests that it is about.
// A host asks why the I/O unit has refused the last of them, or a part of it. The I/O unit reports
// that the reason may have passed, and that the host may repeat its request.
func AppendSubject(dst []byte, t CfgType) []byte {
	return binary.BigEndian.AppendUint32(dst, uint32(t))
}

// DecodeSubject decodes the data of CfgRefusal.
func DecodeSubject(data []byte) (CfgType, error) {
	if err := dataSize(CfgRefusal, data, 4); err != nil {
		return 0, err
	}
	return CfgType(binary.BigEndian.Uint32(data)), nil
}

// AppendRefusal appends the reason of a refusal, of which it takes at most MaxRefusal bytes. An
// empty text says that nothing is refused.
func AppendRefusal(dst []byte, text string) []byte {
	if len(text) > MaxRefusal {
		text = strings.ToValidUTF8(text[:MaxRefusal], "") // without the part of a character
	}
	return append(dst, text...)
}

// DecodeRefusal decodes the data of a reply to CfgRefusal. The text is for display: one line of
// printable characters, whatever the peer has sent.
func DecodeRefusal(data []byte) (string, error) {
	if len(data) > MaxRefusal {
		return "", fmt.Errorf("%v: %d bytes of data, at most %d: %w", CfgRefusal, len(data), MaxRefusal, ErrSize)
	}
	return printable.Text(string(data)), nil
}

// MACSet is an immutable set of addresses in ascending order. Any goroutine may use it.
type MACSet []uint64

// NewMACSet returns the set of the addresses.
func NewMACSet(macs []MAC) MACSet {
	s := make(MACSet, 0, len(macs))
	for _, m := range macs {
		s = append(s, m.number())
	}
	slices.Sort(s)
	return slices.Compact(s)
}

// Has reports whether an address is in the set.
func (s MACSet) Has(m MAC) bool { return s.Index(m) >= 0 }

// Index returns the index of an address in the set, or -1. It allocates nothing.
func (s MACSet) Index(m MAC) int {
	if i, found := slices.BinarySearch(s, m.number()); found {
		return i
	}
	return -1
}

// All yields the addresses in ascending order.
func (s MACSet) All() iter.Seq[MAC] {
	return func(yield func(MAC) bool) {
		for _, n := range s {
			if !yield(MAC{byte(n >> 40), byte(n >> 32), byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}) {
				return
			}
		}
	}
}

func (m MAC) number() uint64 {
	return uint64(m[0])<<40 | uint64(m[1])<<32 | uint64(m[2])<<24 | uint64(m[3])<<16 | uint64(m[4])<<8 | uint64(m[5])
}

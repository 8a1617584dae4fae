package protocol

import (
	"fmt"
	"iter"
	"math/bits"
	"strconv"
	"strings"
)

// The range of VLAN identifiers; 0 and 4095 are no VLANs (IEEE 802.1Q §9.6).
const (
	MinVLAN = 1
	MaxVLAN = 4094
)

// VLANSet is a set of VLANs. It is the data of CfgVLAN: VLAN v is bit v%8 of byte v/8. It selects
// the tagged frames of the LAN that the host receives; untagged frames are always received. The
// zero value is the empty set. Sets can be compared by ==.
type VLANSet [512]byte

// AllVLANs is the set of all VLANs.
func AllVLANs() VLANSet {
	var s VLANSet
	for v := MinVLAN; v <= MaxVLAN; v++ {
		s.Add(uint16(v))
	}
	return s
}

// ParseVLANs parses the format of String: "none", "all", or VLANs and ranges of VLANs, such as
// "2,10-20".
func ParseVLANs(text string) (VLANSet, error) {
	switch text {
	case "none":
		return VLANSet{}, nil
	case "all":
		return AllVLANs(), nil
	}
	var s VLANSet
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			high = low
		}
		first, err1 := strconv.ParseUint(low, 10, 16)
		last, err2 := strconv.ParseUint(high, 10, 16)
		if err1 != nil || err2 != nil || first < MinVLAN || last > MaxVLAN || last < first {
			return VLANSet{}, fmt.Errorf("parse VLANs %q: %q must be a number or a range, %d to %d: %w", text, part, MinVLAN,
				MaxVLAN, ErrVLAN)
		}
		for v := first; v <= last; v++ {
			s.Add(uint16(v))
		}
	}
	return s, nil
}

// Add adds VLAN v. It ignores numbers that are no VLAN.
func (s *VLANSet) Add(v uint16) {
	if v >= MinVLAN && v <= MaxVLAN {
		s[v/8] |= 1 << (v % 8)
	}
}

// Has reports whether VLAN v is in the set. It is fast enough to be called for every frame.
func (s *VLANSet) Has(v uint16) bool {
	return v <= MaxVLAN && s[v/8]&(1<<(v%8)) != 0
}

// Len returns the number of VLANs in the set.
func (s *VLANSet) Len() int {
	n := 0
	for _, b := range s {
		n += bits.OnesCount8(b)
	}
	return n
}

// All iterates over the VLANs in ascending order.
func (s *VLANSet) All() iter.Seq[uint16] {
	return func(yield func(uint16) bool) {
		for i, b := range s {
			for ; b != 0; b &= b - 1 {
				if !yield(uint16(8*i + bits.TrailingZeros8(b))) {
					return
				}
			}
		}
	}
}

// String returns "none", "all", or the VLANs, where consecutive ones are a range.
func (s VLANSet) String() string {
	switch s.Len() {
	case 0:
		return "none"
	case MaxVLAN - MinVLAN + 1:
		return "all"
	}
	var out []string
	for v := uint16(MinVLAN); v <= MaxVLAN; v++ {
		if !s.Has(v) {
			continue
		}
		first := v
		for s.Has(v + 1) {
			v++
		}
		if first == v {
			out = append(out, strconv.Itoa(int(v)))
		} else {
			out = append(out, fmt.Sprintf("%d-%d", first, v))
		}
	}
	return strings.Join(out, ",")
}

// MarshalText returns String, so that the set is text in JSON and YAML.
func (s VLANSet) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses the text with ParseVLANs.
func (s *VLANSet) UnmarshalText(text []byte) error {
	set, err := ParseVLANs(string(text))
	if err != nil {
		return err
	}
	*s = set
	return nil
}

// DecodeVLANSet decodes the data of CfgVLAN.
func DecodeVLANSet(data []byte) (VLANSet, error) {
	if err := dataSize(CfgVLAN, data, len(VLANSet{})); err != nil {
		return VLANSet{}, err
	}
	s := VLANSet(data)
	if s[0]&1 != 0 || s[len(s)-1]&0x80 != 0 {
		return VLANSet{}, fmt.Errorf("%v: 0 and %d are no VLANs: %w", CfgVLAN, MaxVLAN+1, ErrVLAN)
	}
	return s, nil
}

// AppendVLANSet appends the data of CfgVLAN.
func AppendVLANSet(dst []byte, s VLANSet) []byte { return append(dst, s[:]...) }

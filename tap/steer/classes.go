package steer

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// Classes defines which frames are latency-sensitive. ARP, neighbour discovery and ICMP echo
// always are.
type Classes struct {
	DSCP DSCPSet `json:"dscp"`
	// Size is the size in bytes up to which an IP packet is latency-sensitive regardless of
	// its DSCP; 0 for none.
	Size int `json:"size"`
}

// DefaultClasses returns the classes of telephony and of network control: EF, VOICE-ADMIT,
// CS6 and CS7. Size is 0, because in a flood of small frames the small frames are the bulk,
// and nothing would be gained.
func DefaultClasses() Classes {
	return Classes{DSCP: 1<<46 | 1<<44 | 1<<48 | 1<<56}
}

// MaxSize is the largest Classes.Size: that of an IP packet.
const MaxSize = 65535

// Check returns an error if c is invalid.
func (c Classes) Check() error {
	if c.Size < 0 || c.Size > MaxSize {
		return fmt.Errorf("latency-sensitive packets of up to %d bytes: must be 0 to %d", c.Size, MaxSize)
	}
	return nil
}

// DSCPSet is a set of differentiated services code points, 0 to 63: one bit for
// each.
type DSCPSet uint64

// Has reports whether code point p is in the set.
func (s DSCPSet) Has(p uint8) bool { return p < 64 && s>>p&1 != 0 }

// names has the code points by their names in the registry of the IANA, in lower case.
var names = map[string]uint8{
	"cs0": 0, "cs1": 8, "cs2": 16, "cs3": 24, "cs4": 32, "cs5": 40, "cs6": 48, "cs7": 56,
	"af11": 10, "af12": 12, "af13": 14, "af21": 18, "af22": 20, "af23": 22,
	"af31": 26, "af32": 28, "af33": 30, "af41": 34, "af42": 36, "af43": 38,
	"ef": 46, "va": 44, "le": 1,
}

// ParseDSCP returns the set of the code points in list, each a name, such as ef or af41, or a
// number. The set is empty if list is empty or has only the word none.
func ParseDSCP(list []string) (DSCPSet, error) {
	var s DSCPSet
	if len(list) == 1 && strings.EqualFold(list[0], "none") {
		return 0, nil
	}
	for _, word := range list {
		p, ok := names[strings.ToLower(strings.TrimSpace(word))]
		if !ok {
			n, err := strconv.ParseUint(strings.TrimSpace(word), 10, 8)
			if err != nil || n > 63 {
				return 0, fmt.Errorf("DSCP %q: must be 0 to 63, or a name such as ef, va, cs6 or af41", word)
			}
			p = uint8(n)
		}
		s |= 1 << p
	}
	return s, nil
}

// String lists the set by name where there is one, in order: va,ef,cs6,cs7.
func (s DSCPSet) String() string {
	if s == 0 {
		return "none"
	}
	return strings.Join(s.Words(), ",")
}

// Words returns the set as a list for ParseDSCP.
func (s DSCPSet) Words() []string {
	byPoint := make(map[uint8]string, len(names))
	for name, p := range names {
		byPoint[p] = name
	}
	words := make([]string, 0, bits.OnesCount64(uint64(s)))
	for p := range uint8(64) {
		if !s.Has(p) {
			continue
		}
		word := byPoint[p]
		if word == "" {
			word = strconv.Itoa(int(p))
		}
		words = append(words, word)
	}
	return slices.Clip(words)
}

// MarshalText is String.
func (s DSCPSet) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is ParseDSCP for a list separated by commas.
func (s *DSCPSet) UnmarshalText(b []byte) (err error) {
	*s, err = ParseDSCP(strings.Split(string(b), ","))
	return err
}

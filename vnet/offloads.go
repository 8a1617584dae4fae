package vnet

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Offloads is a set of tasks that a frame may leave to the device that sends it. The values are
// part of the wire protocol.
type Offloads uint32

// The offloads.
const (
	CSUM   Offloads = 1 << iota // partial checksums; all others require it
	TSO4                        // TCP super-frames over IPv4
	TSO6                        // TCP super-frames over IPv6
	TSOECN                      // TCP super-frames with ECN's CWR
	USO                         // UDP super-frames over IPv4 and IPv6; kernel 6.2 and later
)

// AllOffloads is every offload that this package knows.
const AllOffloads = CSUM | TSO4 | TSO6 | TSOECN | USO

var offloadNames = [...]string{"csum", "tso4", "tso6", "tsoecn", "uso"}

// tunFlags has TUN_F_* of <linux/if_tun.h> for each offload: CSUM, TSO4, TSO6, TSO_ECN, USO4 and USO6.
var tunFlags = [...]int{0x01, 0x02, 0x04, 0x08, 0x20 | 0x40}

// Closure returns o without unknown bits and without offloads whose prerequisite is missing:
// all others need CSUM, TSOECN needs TSO4 or TSO6.
func (o Offloads) Closure() Offloads {
	if o&CSUM == 0 {
		return 0
	}
	o &= AllOffloads
	if o&(TSO4|TSO6) == 0 {
		o &^= TSOECN
	}
	return o
}

// Intersect returns the closure of the offloads that both sets have.
func (o Offloads) Intersect(p Offloads) Offloads { return (o & p).Closure() }

// TUNFlags returns the argument of the ioctl TUNSETOFFLOAD for the closure
// of o. The kernel takes USO for both IP versions or for none.
func (o Offloads) TUNFlags() (flags int) {
	o = o.Closure()
	for i, f := range tunFlags {
		if o&(1<<i) != 0 {
			flags |= f
		}
	}
	return flags
}

// Needs returns the offloads that a frame with this virtio_net_hdr needs at its receiver. known is false
// if the type of segmentation is unknown.
func Needs(head []byte) (o Offloads, known bool) {
	if head[0]&FlagNeedsCsum != 0 {
		o |= CSUM
	}
	if head[1]&GSOECN != 0 {
		o |= TSOECN
	}
	switch head[1] &^ GSOECN {
	case GSONone:
		return o, true
	case GSOTCPv4:
		return o | TSO4, true
	case GSOTCPv6:
		return o | TSO6, true
	case GSOUDPL4:
		return o | USO, true
	}
	return o, false
}

// String lists the offloads, separated by commas; "none" for the empty set.
func (o Offloads) String() string {
	if o == 0 {
		return "none"
	}
	names := o.Names()
	if rest := o &^ AllOffloads; rest != 0 {
		names = append(names, fmt.Sprintf("%#x", uint32(rest)))
	}
	return strings.Join(names, ",")
}

// ParseOffloads parses a list in the form of String. Besides the names it accepts "all", "none",
// and "tso" for the three TCP offloads. A list with an offload whose prerequisite is missing,
// such as tso4 without csum, is an error.
func ParseOffloads(s string) (Offloads, error) {
	var o Offloads
	for _, f := range strings.Split(s, ",") {
		switch f = strings.ToLower(strings.TrimSpace(f)); f {
		case "", "none":
		case "all":
			o |= AllOffloads
		case "tso":
			o |= TSO4 | TSO6 | TSOECN
		default:
			bit, err := parseOffload(f)
			if err != nil {
				return 0, err
			}
			o |= bit
		}
	}
	if c := o.Closure(); c != o {
		return 0, fmt.Errorf("offloads %q: %v cannot work without the others; add csum, and tso4 or tso6 for tsoecn", s, o&^c)
	}
	return o, nil
}

func parseOffload(name string) (Offloads, error) {
	for i, n := range offloadNames {
		if n == name {
			return 1 << i, nil
		}
	}
	return 0, fmt.Errorf("unknown offload %q; known are %s, tso, all and none", name, strings.Join(offloadNames[:], ", "))
}

// Names returns the names of the known offloads in the set, in the order of their bits.
func (o Offloads) Names() []string {
	names := []string{} // not nil, which would be null instead of a list in JSON
	for i, n := range offloadNames {
		if o&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return names
}

// MarshalJSON encodes the set as the list of its names.
func (o Offloads) MarshalJSON() ([]byte, error) { return json.Marshal(o.Names()) }

// UnmarshalJSON decodes a list of names and ignores unknown ones: a peer may know more
// offloads.
func (o *Offloads) UnmarshalJSON(b []byte) error {
	var names []string
	if err := json.Unmarshal(b, &names); err != nil {
		return fmt.Errorf("list of offloads: %w", err)
	}
	*o = 0
	for _, name := range names {
		if bit, err := parseOffload(name); err == nil {
			*o |= bit
		}
	}
	return nil
}

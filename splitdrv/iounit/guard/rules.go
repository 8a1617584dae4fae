package guard

import (
	"cmp"
	"slices"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/vnet"
)

// Rules determine which frames pass between a host and the LAN. They are never changed, only
// replaced.
type Rules struct {
	MAC     protocol.MAC    // address of the host
	Own     protocol.MAC    // address generated for the host
	Further protocol.MACSet // further addresses of the host
	Host    *policy.Host
	Groups  []protocol.Group // groups that the host receives, in ascending order
	Every   bool             // the host receives frames to all groups
	Receive protocol.VLANSet // VLANs that the host receives: requested and permitted
	MTU     int              // MTU of the session
	Card    int              // MTU of the network card
	Account                  // limits the rates
}

// verdict is the result of checking a frame.
type verdict uint8

const (
	pass        verdict = iota
	source              // to the LAN, dropped: address of the sender
	vlan                // to the LAN, dropped: VLAN, or no VLAN
	nested              // to the LAN, dropped: more than one VLAN tag
	linkControl         // to the LAN, dropped: only for the next switch
	ipSource            // to the LAN, dropped: IP address of the sender, or none visible
	tiny                // to the LAN, dropped: a super-frame of tiny segments
	groupRate           // to the LAN, dropped: too many to groups, or to unknown stations
	malformed           // malformed, or in too many pieces
	filtered            // from the LAN, dropped: the host does not receive it
	verdicts
)

// Offsets in [virtio_net_hdr | Ethernet frame].
const (
	dstAt  = vnet.HdrLen
	srcAt  = dstAt + 6
	typeAt = srcAt + 6
)

// toLAN checks a frame of n bytes from the host. head is its beginning, with at least
// vnet.MinFrame bytes. taken are the addresses of all hosts and of the card.
func (r *Rules) toLAN(head []byte, n int, taken *protocol.MACSet) verdict {
	m := protocol.MAC(head[srcAt:typeAt])
	if m != r.MAC && (!m.Valid() || !r.mayBe(m, taken)) {
		return source
	}
	l := vnet.LayersOf(head)
	if v, ok := l.VLAN(); !ok || !r.inVLAN(v, &r.Host.VLANs) {
		return vlan
	}
	switch {
	case r.Host.SingleTag && l.Tags > 1:
		return nested
	case !r.Host.LinkControl && control(head, l):
		return linkControl
	case vnet.Tiny(head, n):
		return tiny
	case r.Host.IPs != nil && !mayBeFrom(r.Host.IPs, head, l, m):
		return ipSource
	default:
		return pass
	}
}

// mayBe reports whether the host may send from address m, which is not that of its
// netdevice but for example of a machine bridged to it.
func (r *Rules) mayBe(m protocol.MAC, taken *protocol.MACSet) bool {
	if r.Further.Has(m) {
		return true
	}
	return r.Host.MayUse(m, r.Own) && !taken.Has(m)
}

func (r *Rules) fromLAN(frame []byte) verdict {
	if len(frame) < vnet.MinFrame {
		return pass // malformed, which the sender checks
	}
	if frame[dstAt]&1 != 0 && !r.Every && !r.wants(protocol.Group(frame[dstAt:srcAt])) {
		return filtered
	}
	l := vnet.LayersOf(frame)
	if v, ok := l.VLAN(); !ok || !r.inVLAN(v, &r.Receive) {
		return filtered
	}
	if r.Host.SingleTag && l.Tags > 1 {
		return filtered
	}
	return pass
}

// inVLAN reports whether frames of VLAN v pass; 0 means untagged.
func (r *Rules) inVLAN(v uint16, allowed *protocol.VLANSet) bool {
	if v == 0 {
		return !r.Host.TaggedOnly
	}
	return allowed.Has(v)
}

// Broadcast is the group of all stations.
var Broadcast = protocol.Group{255, 255, 255, 255, 255, 255}

// wants reports whether the host receives frames to group g.
func (r *Rules) wants(g protocol.Group) bool {
	if g == Broadcast {
		return true
	}
	_, found := slices.BinarySearchFunc(r.Groups, g, func(a, b protocol.Group) int {
		return cmp.Compare(number(a), number(b))
	})
	return found
}

func number(a [6]byte) uint64 {
	return uint64(a[0])<<40 | uint64(a[1])<<32 | uint64(a[2])<<24 | uint64(a[3])<<16 | uint64(a[4])<<8 | uint64(a[5])
}

// The groups that bridges do not forward (IEEE 802.1Q, table 8-1), without the last four
// bits, those by which bridges learn VLANs and groups (table 10-1) and find faults (table 8-9),
// without the last five bits, and those of Cisco's switches: CDP, VTP, DTP, UDLD and PVST+,
// without the last bit, and CGMP.
const (
	bridgeGroups   = 0x0180c2000000
	registerGroups = 0x0180c2000020
	ciscoGroups    = 0x01000ccccccc
	cgmpGroup      = 0x01000cdddddd
)

// control reports whether a frame is only for switches or for the next station: a frame that
// pauses the link, or changes which links, VLANs and groups are in use.
func control(head []byte, l vnet.Layers) bool {
	if l.LinkControl() {
		return true
	}
	to := number([6]byte(head[dstAt:srcAt]))
	return to&^0xf == bridgeGroups || to&^0x1f == registerGroups || to&^1 == ciscoGroups || to == cgmpGroup
}

package iounit

import (
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/vnet"
)

// rules say which frames pass between a host and the LAN. They are never
// changed, only replaced as a whole.
type rules struct {
	mac      protocol.MAC   // the host's address
	own      protocol.MAC   // that was made for it
	further  []protocol.MAC // of the host too
	host     *policy.Host
	groups   []protocol.Group // wanted, in ascending order
	every    bool             // frames to all groups are wanted
	receive  protocol.VLANSet // wanted and allowed
	mtu      int              // of the session
	card     int              // the network card's MTU
	tx, rx   *bucket          // bound the rates to the LAN and from it; nil: they are not bounded
	toGroups *bucket          // bounds how many packets go to groups of the LAN; nil: it is not bounded
}

// verdict says what is done with a frame.
type verdict uint8

const (
	pass        verdict = iota
	source              // dropped: the sender's address
	vlan                // dropped: the VLAN or none, on the way to the LAN
	nested              // dropped: more VLAN tags than one, on the way to the LAN
	linkControl         // dropped: for the next switch alone
	ipSource            // dropped: the IP address of the sender, or none to be seen
	tiny                // dropped: a super-frame of tiny segments
	groupRate           // dropped: too many to groups, on the way to the LAN
	malformed           // no frame, or it lies in too many places
	filtered            // dropped: the host does not want it
	verdicts
)

// Offsets in [virtio_net_hdr | Ethernet frame].
const (
	dstAt  = vnet.HdrLen
	srcAt  = dstAt + 6
	typeAt = srcAt + 6
)

// toLAN judges a frame of the host's of n bytes, of which head has at least
// vnet.MinFrame. taken are the addresses that others have, or the card.
func (r *rules) toLAN(head []byte, n int, taken *protocol.MACSet) verdict {
	m := protocol.MAC(head[srcAt:typeAt])
	if m != r.mac && (!m.Valid() || !r.mayBe(m, taken)) {
		return source
	}
	if v, ok := vnet.VLAN(head); !ok || !r.inVLAN(v, &r.host.VLANs) {
		return vlan
	}
	l := vnet.LayersOf(head)
	switch {
	case r.host.SingleTag && l.Tags > 1:
		return nested
	case !r.host.LinkControl && control(head, l):
		return linkControl
	case vnet.Tiny(head, n):
		return tiny
	case r.host.IPs != nil && !mayBeFrom(r.host.IPs, head, l, m):
		return ipSource
	default:
		return pass
	}
}

// takesGroup reports whether a frame to the LAN of n bytes, which passes otherwise,
// is within what the host may send to groups, and takes it out of that.
func (r *rules) takesGroup(head []byte, n int, urgent bool) bool {
	return r.toGroups == nil || head[dstAt]&1 == 0 || r.toGroups.takeOne(frameCost(head, n), urgent)
}

// putBackGroups puts back what frames took out that have not been written, and so
// are judged again.
func (r *rules) putBackGroups(ops []vnet.WriteOp) {
	if r.toGroups == nil {
		return
	}
	for i := range ops {
		if ops[i].Head[dstAt]&1 != 0 {
			r.toGroups.giveBack(ops[i : i+1])
		}
	}
}

// mayBe reports whether the host may send from address m, which is not its
// netdevice's: as a machine that is bridged to that.
func (r *rules) mayBe(m protocol.MAC, taken *protocol.MACSet) bool {
	for i := range r.further {
		if r.further[i] == m {
			return true
		}
	}
	return r.host.MayUse(m, r.own) && !taken.Has(m)
}

// fromLAN judges a frame for the host.
func (r *rules) fromLAN(frame []byte) verdict {
	if len(frame) < vnet.MinFrame {
		return pass // what is no frame is not ours to judge
	}
	if frame[dstAt]&1 != 0 && !r.every && !r.wants(protocol.Group(frame[dstAt:srcAt])) {
		return filtered
	}
	if v, ok := vnet.VLAN(frame); !ok || !r.inVLAN(v, &r.receive) {
		return filtered
	}
	if r.host.SingleTag && vnet.LayersOf(frame).Tags > 1 {
		return filtered
	}
	return pass
}

// inVLAN reports whether frames of VLAN v pass, 0 being those without a tag.
func (r *rules) inVLAN(v uint16, allowed *protocol.VLANSet) bool {
	if v == 0 {
		return !r.host.TaggedOnly
	}
	return allowed.Has(v)
}

var broadcast = protocol.Group{255, 255, 255, 255, 255, 255}

// wants reports whether frames to group g are wanted.
func (r *rules) wants(g protocol.Group) bool {
	if g == broadcast {
		return true
	}
	low, high := 0, len(r.groups)
	for low < high {
		mid := int(uint(low+high) / 2)
		switch o := &r.groups[mid]; {
		case *o == g:
			return true
		case number(*o) < number(g):
			low = mid + 1
		default:
			high = mid
		}
	}
	return false
}

// number is an address as a number.
func number(a [6]byte) uint64 {
	return uint64(a[0])<<40 | uint64(a[1])<<32 | uint64(a[2])<<24 | uint64(a[3])<<16 | uint64(a[4])<<8 | uint64(a[5])
}

// The groups that bridges do not forward (IEEE 802.1Q, table 8-1), but for the
// last byte, and those of Cisco's switches: CDP, VTP, DTP, UDLD; and PVST+.
const (
	bridgeGroups = 0x0180c2000000
	ciscoGroups  = 0x01000ccccccc
)

// control reports whether a frame is for the next switch, or the next station,
// alone: it pauses the link, or changes which links and VLANs are in use.
func control(head []byte, l vnet.Layers) bool {
	if l.LinkControl() {
		return true
	}
	to := number([6]byte(head[dstAt:srcAt]))
	return to&^0xf == bridgeGroups || to&^1 == ciscoGroups
}

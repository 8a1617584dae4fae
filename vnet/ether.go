package vnet

import "encoding/binary"

// EtherTypes.
const (
	EtherIPv4       = 0x0800
	EtherARP        = 0x0806
	EtherRARP       = 0x8035
	EtherVLAN       = 0x8100
	EtherIPv6       = 0x86dd
	EtherQinQ       = 0x88a8
	etherPause      = 0x8808 // MAC control: PAUSE, PFC
	etherSlow       = 0x8809 // LACP, marker, OAM
	etherEAPOL      = 0x888e
	etherLLDP       = 0x88cc
	etherMVRP       = 0x88f5 // registration of VLANs
	etherMMRP       = 0x88f6 // registration of groups
	etherCFM        = 0x8902 // faults of the network: continuity, alarms
	etherISID       = 0x88e7 // of provider backbone bridges
	etherVNTag      = 0x8926
	etherETag       = 0x893f
	etherOldQinQ    = 0x9100
	etherOlderQinQ  = 0x9200
	etherOldestQinQ = 0x9300
)

// Layers describes the tags of a [virtio_net_hdr | frame].
type Layers struct {
	Proto uint16 // EtherType behind the tags; 0 if head ends before it
	At    int    // offset behind that EtherType; more than head has if that ends before it
	Tags  int    // number of tags of any type; 2 for one that VLAN does not know

	vlan    uint16
	cut     bool // head ends before it is clear what the VLAN is
	foreign bool // there are tags that Linux does not take for VLAN tags
}

// LayersOf finds the end of all VLAN tags in the beginning of a frame. This includes types that
// VLAN does not take for VLAN tags, but that a switch may be configured to. Tags that are not
// VLAN tags are counted and end the search. Nothing else in this package looks for tags, so that
// all rules find the same ones.
//
// borrowed: head, for the call.
func LayersOf(head []byte) (l Layers) {
	open := true // the next tag can have the VLAN
	for l.At = MinFrame; l.At <= len(head); l.At += TagLen {
		switch l.Proto = binary.BigEndian.Uint16(head[l.At-2:]); l.Proto {
		case EtherVLAN, EtherQinQ, etherOldQinQ:
			l.Tags++
			l.foreign = l.foreign || l.Proto == etherOldQinQ
			if open && l.At+2 <= len(head) {
				l.vlan = binary.BigEndian.Uint16(head[l.At:]) & 0xfff
				open = l.vlan == 0
			}
		case etherOlderQinQ, etherOldestQinQ:
			l.Tags += 2 // VLAN does not look behind it
			l.foreign, open = true, false
		case etherISID, etherVNTag, etherETag:
			l.Tags += 2 // what is behind it is unknown
			l.foreign = true
			return l
		default:
			return l
		}
	}
	l.Proto, l.cut = 0, open
	return l
}

// LinkControl reports whether Proto is the EtherType of frames that pause the link, or change
// which links, VLANs and groups are in use.
func (l Layers) LinkControl() bool {
	switch l.Proto {
	case etherPause, etherSlow, etherEAPOL, etherLLDP, etherMVRP, etherMMRP, etherCFM:
		return true
	}
	return false
}

// VLAN returns the VLAN of the frame, like the function of this name.
func (l Layers) VLAN() (vlan uint16, ok bool) { return l.vlan, !l.cut }

// VLAN returns the VLAN of a [virtio_net_hdr | frame], or 0 if it is in none. Tags with VLAN 0
// only have a priority, and stations look behind them. ok is false if the frame ends in its
// tags.
//
// borrowed: head, for the call.
func VLAN(head []byte) (vlan uint16, ok bool) { return LayersOf(head).VLAN() }

package iounit

import (
	"encoding/binary"

	"github.com/splitnic/splitnic/vnet"
)

// EtherTypes.
const (
	etherIPv4       = 0x0800
	etherARP        = 0x0806
	etherRARP       = 0x8035
	etherVLAN       = 0x8100
	etherIPv6       = 0x86dd
	etherPause      = 0x8808 // MAC control: PAUSE, PFC
	etherSlow       = 0x8809 // LACP, marker, OAM
	etherEAPOL      = 0x888e
	etherQinQ       = 0x88a8
	etherLLDP       = 0x88cc
	etherISID       = 0x88e7 // of provider backbone bridges
	etherVNTag      = 0x8926
	etherETag       = 0x893f
	etherOldQinQ    = 0x9100
	etherOlderQinQ  = 0x9200
	etherOldestQinQ = 0x9300
)

// layers is where a frame's tags end.
type layers struct {
	proto uint16 // EtherType behind the tags; 0 if the frame, or what is seen of it, ends before
	at    int    // of what follows it
	tags  int    // of whatever kind
}

// layersOf looks through all VLAN tags, also those that are none to vlanOf, which
// some switch may be set to take for one. Other tags count as tags and end it.
func layersOf(head []byte) (l layers) {
	for l.at = typeAt + 2; l.at <= len(head); l.at += vnet.TagLen {
		switch l.proto = binary.BigEndian.Uint16(head[l.at-2:]); l.proto {
		case etherVLAN, etherQinQ, etherOldQinQ:
			l.tags++
		case etherOlderQinQ, etherOldestQinQ:
			l.tags += 2 // its VLAN was not judged
		case etherISID, etherVNTag, etherETag:
			l.tags += 2 // nobody says what is behind it
			return l
		default:
			return l
		}
	}
	l.proto = 0
	return l
}

// The groups that bridges do not forward (IEEE 802.1Q, table 8-1), but for the
// last byte, and those of Cisco's switches: CDP, VTP, DTP, UDLD; and PVST+.
const (
	bridgeGroups = 0x0180c2000000
	ciscoGroups  = 0x01000ccccccc
)

// control reports whether a frame is for the next switch, or the next station,
// alone: it pauses the link, or changes which links and VLANs are in use.
func (l layers) control(head []byte) bool {
	switch l.proto {
	case etherPause, etherSlow, etherEAPOL, etherLLDP:
		return true
	}
	to := number([6]byte(head[dstAt:srcAt]))
	return to&^0xf == bridgeGroups || to&^1 == ciscoGroups
}

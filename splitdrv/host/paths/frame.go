package paths

import (
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// Offsets in [virtio_net_hdr | Ethernet frame].
const (
	dstAt  = vnet.HdrLen
	srcAt  = dstAt + 6
	typeAt = srcAt + 6
)

// mayCarry reports whether a frame is in no VLAN, or in one of those, and has no other
// tag. Those that have, and those for the next switch alone, are the I/O unit's to
// judge.
func mayCarry(vlans *protocol.VLANSet, head []byte) bool {
	v, _ := vnet.VLAN(head)
	l := vnet.LayersOf(head)
	return l.Proto != 0 && l.Tags <= 1 && !l.LinkControl() && (v == 0 || vlans.Has(v))
}

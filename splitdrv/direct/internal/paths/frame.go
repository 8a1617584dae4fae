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

// mayCarry reports whether a frame may use a direct path: it is untagged, or has a single
// tag of one of vlans, and is not a link-control frame. The I/O unit decides on all others.
func mayCarry(vlans *protocol.VLANSet, head []byte) bool {
	l := vnet.LayersOf(head)
	v, _ := l.VLAN()
	return l.Proto != 0 && l.Tags <= 1 && !l.LinkControl() && (v == 0 || vlans.Has(v))
}

package paths

import (
	"sync/atomic"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// route is the part of a direct path that the goroutines that move frames use.
type route struct {
	peer      Peer
	own       protocol.MACSet
	theirs    protocol.MACSet
	reader    *reader
	holdLimit int // bytes in the ring while frames wait

	state   state       // guarded by Split.mu; written under the locks of all queues, too
	gone    atomic.Bool // state is closed
	probes  arrivals
	markers arrivals
	count   counts
}

// judge checks a frame of n bytes from the peer; head is its beginning. This host trusts the
// I/O unit's description of the peer, and not the peer.
func (p *route) judge(head []byte, n int) verdict {
	switch {
	case len(head) < vnet.MinFrame:
		return malformed
	case !p.theirs.Has(protocol.MAC(head[srcAt:typeAt])):
		return source
	case head[dstAt]&1 != 0 || !p.own.Has(protocol.MAC(head[dstAt:srcAt])):
		return destination
	case !mayCarry(&p.peer.VLANs, head):
		return vlan
	case vnet.CheckHead(head, n, p.peer.MTU) != nil || vnet.Tiny(head, n):
		return malformed
	default:
		return pass
	}
}

package paths

import (
	"sync/atomic"

	"github.com/splitnic/splitnic/protocol"
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

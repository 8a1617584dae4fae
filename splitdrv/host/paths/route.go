package paths

import (
	"sync/atomic"

	"github.com/splitnic/splitnic/protocol"
)

// route is what those who move frames know of a direct path.
type route struct {
	peer      Peer
	own       protocol.MACSet
	theirs    protocol.MACSet
	reader    *reader
	holdLimit int // bytes in the ring while frames wait

	state   state       // guarded by Split.mu, and written with the queues' locks as well
	gone    atomic.Bool // the state is closed
	probes  arrivals
	markers arrivals
	count   counts
}

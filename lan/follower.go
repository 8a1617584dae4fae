package lan

import (
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netlink/nl"
)

// watcher is the state of one call of Watch.
type watcher struct {
	own     int           // index of the port's own netdevice, or 0
	recheck atomic.Bool   // own has to be looked up, as it may have been removed
	changed chan struct{} // has capacity 1
}

func (w *watcher) tell() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// follower follows the state of a card for all watchers. It has one socket that receives
// link messages, and reads the state of the card once after each change, however many ports
// there are. The socket and its goroutine end with the last watcher.
type follower struct {
	mu       sync.Mutex
	socket   *nl.NetlinkSocket // nil if there are no watchers
	ended    chan struct{}     // closed when the goroutine that reads socket has ended
	state    LinkState
	err      error // of the latest read of the state, or why the goroutine has ended
	watchers map[*watcher]struct{}
	looked   func() // called after each read of the state; for tests
}

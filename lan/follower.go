package lan

import (
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netlink/nl"
)

// watcher is one who watches.
type watcher struct {
	own     int           // index of a netdevice of its own, or 0
	recheck atomic.Bool   // own has to be looked up: it may have been removed
	changed chan struct{} // of capacity one
}

func (w *watcher) tell() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// follower follows the state of a card for all who watch it: one socket that hears
// of changes, and one look at the card after each of them, however many ports
// there are. Both end with the last watcher.
type follower struct {
	mu       sync.Mutex
	socket   *nl.NetlinkSocket // nil: nobody watches
	ended    chan struct{}     // closed when the goroutine has ended that reads socket
	state    LinkState
	err      error // of the latest look, or why there is none any more
	watchers map[*watcher]struct{}
	looked   func() // called after each look; for tests
}

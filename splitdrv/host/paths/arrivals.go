package paths

import (
	"sync"

	"github.com/splitnic/splitnic/protocol"
)

// arrivals are the peer's markers that have come. The I/O unit has the frames of one of
// the sender's queues in any of the receiver's, and so a marker of each comes through
// all of these.
type arrivals struct {
	mu     sync.Mutex
	queues int         // of the sender's
	seen   [][4]uint64 // by queue of this host's: those of the sender's
	told   bool
}

// saw enters a marker that came through a queue of this host's, of which so many are in
// use, and reports whether it is the last one that was missing. That happens once.
func (a *arrivals) saw(m protocol.Marker, queue, used int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if int(m.Queues) != a.queues { // the peer has another session: its markers come again
		a.queues, a.seen = int(m.Queues), nil
	}
	for len(a.seen) <= max(queue, used-1) {
		a.seen = append(a.seen, [4]uint64{})
	}
	a.seen[queue][m.Queue/64] |= 1 << (m.Queue % 64)
	return a.complete(used)
}

// look calls then if no marker is missing any more.
func (a *arrivals) look(used int, then func()) {
	a.mu.Lock()
	last := a.complete(used)
	a.mu.Unlock()
	if last {
		then()
	}
}

func (a *arrivals) complete(used int) bool {
	if a.told || a.queues == 0 || len(a.seen) < used {
		return false
	}
	for _, seen := range a.seen[:used] {
		for i := range a.queues {
			if seen[i/64]&(1<<(i%64)) == 0 {
				return false
			}
		}
	}
	a.told = true
	return true
}

package paths

import (
	"sync"

	"github.com/splitnic/splitnic/protocol"
)

// arrivals records which markers of the peer have arrived. Frames of one queue of the sender
// can arrive in any queue of the receiver, so a marker of each of the sender's queues has to
// arrive in each of the receiver's.
type arrivals struct {
	mu     sync.Mutex
	queues int         // number of the sender's queues
	seen   [][4]uint64 // for each queue of this host, a bit for each queue of the sender
	told   bool
}

// saw records a marker that arrived in a queue of this host, of which used are in use. It
// reports, once, that no marker is missing any more.
func (a *arrivals) saw(m protocol.Marker, queue, used int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if int(m.Queues) != a.queues { // the peer has another session, and repeats its markers
		a.queues, a.seen = int(m.Queues), nil
	}
	for len(a.seen) <= max(queue, used-1) {
		a.seen = append(a.seen, [4]uint64{})
	}
	a.seen[queue][m.Queue/64] |= 1 << (m.Queue % 64)
	return a.complete(used)
}

// look calls then if no marker is missing any more, after used has changed.
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

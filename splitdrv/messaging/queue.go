package messaging

import (
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/internal/epoll"
)

// queue holds what others have for a worker to do. Anybody may put, without
// ever waiting; the worker takes.
type queue[T any] struct {
	mu      sync.Mutex
	items   []T
	spare   []T // changes places with items: nothing is allocated in the long run
	pending atomic.Bool
	asleep  atomic.Bool  // the worker's: it sleeps, or is about to
	wake    *epoll.Event // raised for a worker that sleeps
}

// put adds items, which it copies, and wakes the worker.
func (q *queue[T]) put(items ...T) {
	q.mu.Lock()
	q.items = append(q.items, items...)
	q.pending.Store(true)
	q.mu.Unlock()
	if q.asleep.Load() {
		q.wake.Set()
	}
}

// take returns what has come, in order. It is good until the next call.
func (q *queue[T]) take() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending.Store(false)
	taken := q.items
	clear(q.spare[:cap(q.spare)])
	q.items, q.spare = q.spare[:0], taken
	return taken
}

// len is how many items wait.
func (q *queue[T]) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

// rxEvent is something that a receiver hears from other workers.
type rxEvent struct {
	kind   rxKind
	pool   *bufpool.Local // rxAdopt, rxDrain
	class  uint32         // rxIndicated: the pool, counted from the channel's first
	elem   uint32
	length uint32
	last   bool           // rxIndicated: of its message
	batch  *bufpool.Batch // rxRevoked, rxRebound
}

type rxKind uint8

const (
	rxIndicated rxKind = iota // the peer has written an element and says so on the control channel
	rxAdopt                   // there is a pool that is about to be lent
	rxDrain                   // the peer has stopped using a pool
	rxSent                    // in mode send-uc: the peer says what it has sent so far
	rxRevoked                 // the windows of elements are invalid
	rxRebound                 // they are bound again
	rxUnblocked               // there is room for an update that found none
)

// sqRequest is something for a sender to do besides frames: it alone posts to the
// send queue of its data channel.
type sqRequest struct {
	kind  sqKind
	pool  *bufpool.Remote // sqDrain: nil for everything that was sent; sqInvalidate
	last  bool            // sqDrain: then invalidate its window, if it has one for that
	lent  *bufpool.Local  // sqBind, sqBindSend, sqUnbind
	batch *bufpool.Batch  // sqRevoke, sqRebind
	next  int             // of these but for sqBindSend: the first of its windows that is not posted yet
	done  chan<- struct{} // sqDrain of everything: has room; may be nil
	mem   []byte          // sqSlots
	key   uint32          // of the region that it is
}

type sqKind uint8

const (
	sqDrain      sqKind = iota // wait until all transfers to a pool of the peer's have completed
	sqInvalidate               // invalidate the window of a pool that is out of use
	sqBind                     // bind the windows of a pool of this side's
	sqBindSend                 // bind the window of one, and send its key behind
	sqUnbind                   // invalidate them
	sqRevoke                   // invalidate the windows of elements
	sqRebind                   // bind them again
	sqSlots                    // use more send slots
	sqRecall                   // keep nothing that the port has lent and that is not sent
)

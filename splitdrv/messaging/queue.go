package messaging

import (
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/internal/epoll"
)

// queue passes items from other goroutines to a worker. Any goroutine may put, which never
// waits; only the worker takes.
type queue[T any] struct {
	mu      sync.Mutex
	items   []T
	spare   []T         // swapped with items, so that no memory is allocated in the long run
	pending atomic.Bool // items is not empty
	asleep  atomic.Bool // set by the worker: it sleeps or is about to
	wake    *epoll.Event
}

// put copies items into the queue and wakes the worker if it sleeps.
func (q *queue[T]) put(items ...T) {
	q.mu.Lock()
	q.items = append(q.items, items...)
	q.pending.Store(true)
	q.mu.Unlock()
	if q.asleep.Load() {
		q.wake.Set()
	}
}

// take removes and returns all items, in order. The slice is valid until the next call.
func (q *queue[T]) take() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending.Store(false)
	taken := q.items
	clear(q.spare[:cap(q.spare)])
	q.items, q.spare = q.spare[:0], taken
	return taken
}

// len returns the number of items.
func (q *queue[T]) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

// raise signals a channel of capacity one. It never waits.
func raise(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// rxEvent is an event that another goroutine sends to a receiver.
type rxEvent struct {
	kind   rxKind
	pool   *bufpool.Local // rxAdopt, rxDrain
	class  uint32         // rxIndicated: reference of the pool minus the channel's first
	elem   uint32
	length uint32
	last   bool           // rxIndicated: last one of its message
	batch  *bufpool.Batch // rxRevoked, rxRebound
}

type rxKind uint8

const (
	rxIndicated rxKind = iota // an indication: the peer has written an element
	rxAdopt                   // adopt a pool that is about to be lent
	rxDrain                   // the peer has stopped using a pool
	rxSent                    // mode send-uc: the sequence number that the peer has reached
	rxRevoked                 // the windows of a batch are invalidated
	rxRebound                 // the windows of a batch are bound again
	rxUnblocked               // a slot is free for an update that had found none
)

// sqRequest asks a sender to post something other than frames. Only the sender posts to the
// send queue of its data channel.
type sqRequest struct {
	kind  sqKind
	pool  *bufpool.Remote // sqInvalidate; sqDrain, where nil means all transfers
	last  bool            // sqDrain: invalidate the pool's window afterwards, if it has one
	lent  *bufpool.Local  // sqBind, sqBindSend, sqUnbind
	batch *bufpool.Batch  // sqRevoke, sqRebind
	next  int             // sqBind, sqUnbind, sqRevoke, sqRebind: first window that is not posted yet
	done  chan<- struct{} // sqDrain of all transfers: gets a value at the end; has room; may be nil
	mem   []byte          // sqSlots: memory of the slots
	key   uint32          // sqSlots: local key of mem
}

type sqKind uint8

const (
	sqDrain      sqKind = iota // wait until all transfers to a remote pool have completed
	sqInvalidate               // invalidate the window of a remote pool that is no longer used
	sqBind                     // bind the windows of a local pool
	sqBindSend                 // bind the window of a local pool, and send its key behind
	sqUnbind                   // invalidate the windows of a local pool
	sqRevoke                   // invalidate the windows of a batch of elements
	sqRebind                   // bind the windows of a batch again
	sqSlots                    // use more send slots
	sqRecall                   // copy the lent frames that are not sent, and return their loans
	sqLook                     // look for failed work requests
)

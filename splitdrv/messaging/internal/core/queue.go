package core

import (
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/internal/epoll"
)

// Queue passes items from other goroutines to a worker. Any goroutine may put, which never
// waits; only the worker takes.
type Queue[T any] struct {
	mu      sync.Mutex
	items   []T
	spare   []T         // swapped with items, so that no memory is allocated in the long run
	Pending atomic.Bool // items is not empty
	Asleep  atomic.Bool // set by the worker: it sleeps or is about to
	Wake    *epoll.Event
}

// Put copies items into the queue and wakes the worker if it sleeps.
func (q *Queue[T]) Put(items ...T) {
	q.mu.Lock()
	q.items = append(q.items, items...)
	q.Pending.Store(true)
	q.mu.Unlock()
	if q.Asleep.Load() {
		q.Wake.Set()
	}
}

// Take removes and returns all items, in order. The slice is valid until the next call.
func (q *Queue[T]) Take() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.Pending.Store(false)
	taken := q.items
	clear(q.spare[:cap(q.spare)])
	q.items, q.spare = q.spare[:0], taken
	return taken
}

// Len returns the number of items.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

// Raise signals a channel of capacity one. It never waits.
func Raise(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// RxEvent is an event that another goroutine sends to a receiver.
type RxEvent struct {
	Kind   rxKind
	Pool   *bufpool.Local // RxAdopt, RxDrain
	Class  uint32         // RxIndicated: reference of the pool minus the channel's first
	Elem   uint32
	Length uint32
	Last   bool           // RxIndicated: last one of its message
	Batch  *bufpool.Batch // RxRevoked, RxRebound
}

type rxKind uint8

const (
	RxIndicated rxKind = iota // an indication: the peer has written an element
	RxAdopt                   // adopt a pool that is about to be lent
	RxDrain                   // the peer has stopped using a pool
	RxSent                    // mode send-uc: the sequence number that the peer has reached
	RxRevoked                 // the windows of a batch are invalidated
	RxRebound                 // the windows of a batch are bound again
	RxUnblocked               // a slot is free for an update that had found none
)

// SqRequest asks a sender to post something other than frames. Only the sender posts to the
// send queue of its data channel.
type SqRequest struct {
	Kind  sqKind
	Pool  *bufpool.Remote // SqInvalidate; SqDrain, where nil means all transfers
	Last  bool            // SqDrain: invalidate the pool's window afterwards, if it has one
	Lent  *bufpool.Local  // SqBind, SqBindSend, SqUnbind
	Batch *bufpool.Batch  // SqRevoke, SqRebind
	Next  int             // SqBind, SqUnbind, SqRevoke, SqRebind: first window that is not posted yet
	Done  chan<- struct{} // SqDrain of all transfers: gets a value at the end; has room; may be nil
	Mem   []byte          // SqSlots: memory of the slots
	Key   uint32          // SqSlots: local key of mem
}

type sqKind uint8

const (
	SqDrain      sqKind = iota // wait until all transfers to a remote pool have completed
	SqInvalidate               // invalidate the window of a remote pool that is no longer used
	SqBind                     // bind the windows of a local pool
	SqBindSend                 // bind the window of a local pool, and send its key behind
	SqUnbind                   // invalidate the windows of a local pool
	SqRevoke                   // invalidate the windows of a batch of elements
	SqRebind                   // bind the windows of a batch again
	SqSlots                    // use more send slots
	SqRecall                   // copy the lent frames that are not sent, and return their loans
	SqLook                     // look for failed work requests
)

package core

import (
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/internal/epoll"
)

// Wakeup makes a worker look for what other goroutines have left for it.
type Wakeup struct {
	Pending atomic.Bool  // the worker was woken and has not looked yet
	Asleep  atomic.Bool  // set by the worker: it sleeps or is about to
	Event   *epoll.Event // which the worker waits for
}

// Wake makes the worker look. It never waits.
func (w *Wakeup) Wake() {
	w.Pending.Store(true)
	w.wakeAsleep()
}

func (w *Wakeup) wakeAsleep() {
	if w.Asleep.Load() {
		w.Event.Set()
	}
}

// Queue passes items from other goroutines to a worker. Any goroutine may put, which never
// waits; only the worker takes.
type Queue[T any] struct {
	Wakeup
	mu    sync.Mutex
	items []T
	spare []T // swapped with items, so that no memory is allocated in the long run
}

// Put copies items into the queue and wakes the worker.
func (q *Queue[T]) Put(items ...T) {
	q.mu.Lock()
	q.items = append(q.items, items...)
	q.Pending.Store(true)
	q.mu.Unlock()
	q.wakeAsleep()
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

// RxEvent is an action of a receiver: bufpool.Adopt and Drain of a pool, bufpool.Consume of an
// element, and bufpool.Revoke and Rebind of a batch with which the sender is done.
type RxEvent struct {
	Do     bufpool.Do
	Last   bool   // Consume: the last element of its message
	Class  uint32 // Consume: reference of the pool minus the channel's first
	Elem   uint32
	Length uint32
	Local  *bufpool.Local
	Batch  *bufpool.Batch
}

package messaging

import (
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/internal/epoll"
)

// mailbox holds what others have for a worker to do. Anybody may put, without
// ever waiting; the worker takes.
type mailbox[T any] struct {
	mu      sync.Mutex
	letters []T
	spare   []T // changes places with letters: nothing is allocated in the long run
	pending atomic.Bool
	asleep  atomic.Bool  // the worker's: it sleeps, or is about to
	wake    *epoll.Event // raised for a worker that sleeps
}

// put adds letters, which it copies, and wakes the worker.
func (m *mailbox[T]) put(letters ...T) {
	m.mu.Lock()
	m.letters = append(m.letters, letters...)
	m.pending.Store(true)
	m.mu.Unlock()
	if m.asleep.Load() {
		m.wake.Set()
	}
}

// take returns what has come, in order. It is good until the next call.
func (m *mailbox[T]) take() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending.Store(false)
	taken := m.letters
	clear(m.spare[:cap(m.spare)])
	m.letters, m.spare = m.spare[:0], taken
	return taken
}

// len is how many letters wait.
func (m *mailbox[T]) len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.letters)
}

// letter is something for a receiver to do.
type letter struct {
	kind   letterKind
	pool   *bufpool.Local // letterAdopt, letterRetire
	class  uint32         // letterIndicated: the pool, counted from the channel's first
	elem   uint32
	length uint32
	last   bool           // letterIndicated: of its message
	batch  *bufpool.Batch // letterRevoked, letterRebound
}

type letterKind uint8

const (
	letterIndicated letterKind = iota // the peer has written an element and says so on the control channel
	letterAdopt                       // a pool that is about to be lent
	letterRetire                      // a pool that the peer has stopped using
	letterSent                        // in mode send-uc: what the peer has sent so far
	letterRevoked                     // elements whose windows are invalid
	letterRebound                     // elements whose windows are bound again
)

// errand is something for a sender to do besides frames: it alone posts to the
// send queue of its data channel.
type errand struct {
	kind  errandKind
	pool  *bufpool.Remote // errandRelease: nil for everything that was sent; errandInvalidate
	last  bool            // errandRelease: then invalidate its window, if it has one for that
	lent  *bufpool.Local  // errandBind, errandUnbind
	batch *bufpool.Batch  // errandRevoke, errandRebind
	next  int             // of these four: the first of its windows that is not posted yet
	done  chan<- struct{} // errandRelease of everything: has room; may be nil
}

type errandKind uint8

const (
	errandRelease    errandKind = iota // stop using a pool of the peer's
	errandInvalidate                   // invalidate the window of a pool that is out of use
	errandBind                         // bind the windows of a pool of this side's
	errandUnbind                       // invalidate them
	errandRevoke                       // invalidate the windows of elements
	errandRebind                       // bind them again
)

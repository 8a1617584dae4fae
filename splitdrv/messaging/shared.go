package messaging

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/internal/ticker"
)

// shared is what all goroutines of a session have in common: what it is made of, and
// its end.
type shared struct {
	cfg      Config // Protection is the one in force
	domain   fabric.Domain
	handlers *handlers
	memory   memory
	mtu      atomic.Int64
	clock    *ticker.Clock // of who looks after the session
	heard    atomic.Uint64 // by that clock, when the latest message or batch of frames came from the peer

	stop       *epoll.Event // raised when the session ends; never lowered
	stopped    atomic.Bool  // the same, for those who are awake
	done       chan struct{}
	failure    error // why the session ended; written before done is closed
	ending     atomic.Bool
	ended      sync.Once
	atEnd      func()
	reason     func(error) error // what an error of a goroutine's is only a consequence of
	workers    sync.WaitGroup
	background sync.WaitGroup

	events  []*epoll.Event
	waiters []*epoll.Set
}

// newEvent makes an event that lives as long as the session.
func (c *shared) newEvent() (*epoll.Event, error) {
	e, err := epoll.NewEvent()
	if err == nil {
		c.events = append(c.events, e)
	}
	return e, err
}

// newWaiter makes a waiter for the descriptors and the end of the session.
func (c *shared) newWaiter(interests ...epoll.Interest) (*epoll.Set, error) {
	w, err := epoll.NewSet(append(interests, epoll.Readable(c.stop.FD()))...)
	if err == nil {
		c.waiters = append(c.waiters, w)
	}
	return w, err
}

// spawn runs a worker until the session ends; an error of its ends the session.
func (c *shared) spawn(run func() error) {
	c.workers.Go(func() {
		if err := run(); err != nil {
			c.end(c.reason(err))
		}
	})
}

// work is spawn for a goroutine with a worker.
func (c *shared) work(w *worker, run func() error) {
	c.spawn(func() error {
		w.bindThread()
		defer w.release()
		return run()
	})
}

// inBackground has something done that waits for the peer, or for a time. Its error
// ends the session, but for one that says that the session has ended.
func (c *shared) inBackground(do func() error) {
	c.background.Go(func() {
		if err := do(); err != nil && !errors.Is(err, net.ErrClosed) {
			c.end(err)
		}
	})
}

// endLater is end for who must not wait, as whoever looks for the reason may have to.
func (c *shared) endLater(err error) {
	if !c.ending.Swap(true) {
		c.background.Go(func() { c.end(c.reason(err)) })
	}
}

// sleep waits, and reports whether the session goes on.
func (c *shared) sleep(wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.done:
		return false
	}
}

// end ends the session; only the first reason counts.
func (c *shared) end(err error) {
	c.ended.Do(func() {
		c.failure = err
		c.stopped.Store(true)
		if c.stop != nil {
			c.stop.Set()
		}
		close(c.done)
		if c.atEnd != nil {
			c.atEnd()
		}
	})
}

// hear notes that a message has come from the peer.
func (c *shared) hear() { c.hearAt(c.clock.Now()) }

// hearFrames notes that a batch of frames has. It is called often, and writes seldom.
func (c *shared) hearFrames() { c.hearAt(c.clock.Often()) }

func (c *shared) hearAt(now time.Duration) {
	if heard := uint64(now); c.heard.Load() != heard {
		c.heard.Store(heard)
	}
}

// firstRef is the lowest reference of the pools lent on a data channel.
func (c *shared) firstRef(channel int) uint32 { return uint32((channel - 1) * c.cfg.MaxPools) }

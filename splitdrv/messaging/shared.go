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
	"github.com/splitnic/splitnic/protocol"
)

// shared is the state that all goroutines of a session share, including its end.
type shared struct {
	device   fabric.Device
	mode     protocol.Mode
	maxPools int // largest number of pools that this side lends on a data channel

	domain   fabric.Domain
	handlers *handlers
	memory   memory
	mtu      atomic.Int64
	pathMTU  atomic.Int64  // bytes; set by Connect
	clock    *ticker.Clock // clock of the keep-alives
	heard    atomic.Uint64 // time, by clock, of the last message or batch of frames from the peer

	stop    *epoll.Event // raised when the session ends; never cleared
	stopped atomic.Bool  // true when the session ends, for goroutines that do not sleep
	done    chan struct{}
	failure error // reason for the end; written before done is closed
	ending  atomic.Bool
	ended   sync.Once
	atEnd   func()
	// reason returns the cause of a goroutine's error. own looks at the completion queues that
	// belong to the goroutine; it may be nil (see causeOf).
	reason     func(err error, own func() error) error
	workers    sync.WaitGroup
	background sync.WaitGroup

	events  []*epoll.Event
	waiters []*epoll.Set
}

// newEvent returns an event that is closed with the session.
func (c *shared) newEvent() (*epoll.Event, error) {
	e, err := epoll.NewEvent()
	if err == nil {
		c.events = append(c.events, e)
	}
	return e, err
}

// newWaiter returns a waiter for the given events and the end of the session.
func (c *shared) newWaiter(interests ...epoll.Interest) (*epoll.Set, error) {
	w, err := epoll.NewSet(append(interests, epoll.Readable(c.stop.FD()))...)
	if err == nil {
		c.waiters = append(c.waiters, w)
	}
	return w, err
}

// spawn starts a goroutine that runs until the session ends. Its error ends the session.
func (c *shared) spawn(run func() error) {
	c.workers.Go(func() {
		if err := run(); err != nil {
			c.end(c.reason(err, nil))
		}
	})
}

// work starts a goroutine with a worker, like spawn. own looks at the worker's completion queues
// when it has failed.
func (c *shared) work(w *worker, run, own func() error) {
	c.workers.Go(func() {
		w.bindThread()
		err := run()
		w.release()
		if err != nil {
			c.end(c.reason(err, own))
		}
	})
}

// inBackground starts a goroutine for a task that waits for the peer or for a time. Its
// error ends the session, unless it is net.ErrClosed.
func (c *shared) inBackground(do func() error) {
	c.background.Go(func() {
		if err := do(); err != nil && !errors.Is(err, net.ErrClosed) {
			c.end(c.reason(err, nil))
		}
	})
}

// endLater ends the session for the cause of err, like spawn. It does not wait; finding the
// cause can take a while.
func (c *shared) endLater(err error) {
	if !c.ending.Swap(true) {
		c.background.Go(func() { c.end(c.reason(err, nil)) })
	}
}

// sleep waits, and reports false if the session ends first.
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

// end ends the session for a reason. Only the first call has an effect.
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

// hear records that a message has arrived from the peer.
func (c *shared) hear() { c.hearAt(c.clock.Now()) }

// hearFrames records that a batch of frames has arrived. It is called often, and seldom has
// to write.
func (c *shared) hearFrames() { c.hearAt(c.clock.Often()) }

func (c *shared) hearAt(now time.Duration) {
	if heard := uint64(now); c.heard.Load() != heard {
		c.heard.Store(heard)
	}
}

// firstRef returns the lowest reference of the pools that this side lends on a data channel.
func (c *shared) firstRef(channel int) uint32 { return uint32((channel - 1) * c.maxPools) }

package core

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/internal/ticker"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/memory"
)

// Session is the state that all goroutines of a session share, including its end.
type Session struct {
	Device   fabric.Device
	Mode     protocol.Mode
	MaxPools int // largest number of pools that this side lends on a data channel

	Domain   fabric.Domain
	Handlers *cq.Handlers
	Memory   memory.Memory
	MTU      atomic.Int64
	PathMTU  atomic.Int64  // bytes; set by Connect
	Clock    *ticker.Clock // clock of the keep-alives
	Heard    atomic.Uint64 // time, by clock, of the last message or batch of frames from the peer

	Stop    *epoll.Event // raised when the session ends; never cleared
	Stopped atomic.Bool  // true when the session ends, for goroutines that do not sleep
	Done    chan struct{}
	Failure error // reason for the end; written before done is closed
	ending  atomic.Bool
	ended   sync.Once
	AtEnd   func()
	// Reason returns the cause of a goroutine's error. own looks at the completion queues that
	// belong to the goroutine; it may be nil (see causeOf).
	Reason     func(err error, own func() error) error
	Workers    sync.WaitGroup
	Background sync.WaitGroup

	Events  []*epoll.Event
	Waiters []*epoll.Set
}

// NewEvent returns an event that is closed with the session.
func (c *Session) NewEvent() (*epoll.Event, error) {
	e, err := epoll.NewEvent()
	if err == nil {
		c.Events = append(c.Events, e)
	}
	return e, err
}

// NewWaiter returns a waiter for the given events and the end of the session.
func (c *Session) NewWaiter(interests ...epoll.Interest) (*epoll.Set, error) {
	w, err := epoll.NewSet(append(interests, epoll.Readable(c.Stop.FD()))...)
	if err == nil {
		c.Waiters = append(c.Waiters, w)
	}
	return w, err
}

// Spawn starts a goroutine that runs until the session ends. Its error ends the session.
func (c *Session) Spawn(run func() error) {
	c.Workers.Go(func() {
		if err := run(); err != nil {
			c.End(c.Reason(err, nil))
		}
	})
}

// Work starts a goroutine with a worker, like spawn. own looks at the worker's completion queues
// when it has failed.
func (c *Session) Work(w *cq.Worker, run, own func() error) {
	c.Workers.Go(func() {
		w.BindThread()
		err := run()
		w.Release()
		if err != nil {
			c.End(c.Reason(err, own))
		}
	})
}

// InBackground starts a goroutine for a task that waits for the peer or for a time. Its
// error ends the session, unless it is net.ErrClosed.
func (c *Session) InBackground(do func() error) {
	c.Background.Go(func() {
		if err := do(); err != nil && !errors.Is(err, net.ErrClosed) {
			c.End(c.Reason(err, nil))
		}
	})
}

// EndLater ends the session for the cause of err, like spawn. It does not wait; finding the
// cause can take a while.
func (c *Session) EndLater(err error) {
	if !c.ending.Swap(true) {
		c.Background.Go(func() { c.End(c.Reason(err, nil)) })
	}
}

// Sleep waits, and reports false if the session ends first.
func (c *Session) Sleep(wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.Done:
		return false
	}
}

// End ends the session for a reason. Only the first call has an effect.
func (c *Session) End(err error) {
	c.ended.Do(func() {
		c.Failure = err
		c.Stopped.Store(true)
		if c.Stop != nil {
			c.Stop.Set()
		}
		close(c.Done)
		if c.AtEnd != nil {
			c.AtEnd()
		}
	})
}

// Hear records that a message has arrived from the peer.
func (c *Session) Hear() { c.hearAt(c.Clock.Now()) }

// HearFrames records that a batch of frames has arrived. It is called often, and seldom has
// to write.
func (c *Session) HearFrames() { c.hearAt(c.Clock.Often()) }

func (c *Session) hearAt(now time.Duration) {
	if heard := uint64(now); c.Heard.Load() != heard {
		c.Heard.Store(heard)
	}
}

// FirstRef returns the lowest reference of the pools that this side lends on a data channel.
func (c *Session) FirstRef(channel int) uint32 { return uint32((channel - 1) * c.MaxPools) }

// With Config.ProvePath the second message of each side on the control channel is one packet of
// the path MTU. The channel is reliable and ordered: where such packets do not get through, only
// the first message of the peer is heard, and the session ends before it has begun.

// portMTU is a fabric.Device that knows its port's MTU in bytes at the moment.
type portMTU interface {
	PortMTU() (int, error)
}

// Fits returns an error if the port's MTU has fallen below the path MTU. What the device cannot
// say ends no session.
func (c *Session) Fits() error {
	d, ok := c.Device.(portMTU)
	if !ok {
		return nil
	}
	path := int(c.PathMTU.Load())
	if mtu, err := d.PortMTU(); err == nil && mtu < path {
		return fmt.Errorf("%w: %d and %d bytes; was the MTU of a netdevice changed?", ErrPathMTU, mtu, path)
	}
	return nil
}

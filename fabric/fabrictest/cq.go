package fabrictest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
)

var (
	_ fabric.CQ        = (*cq)(nil)
	_ fabric.Moderator = (*cq)(nil)
)

var errOverflow = errors.New("the completion queue overflowed and completions are lost: make it as deep as the work queues that report to it")

func newCQ(d *domain, depth int) (*cq, error) {
	fd, err := newEventFD()
	if err != nil {
		return nil, err
	}
	size := 1
	for size < depth {
		size *= 2
	}
	return &cq{
		dom: d, number: d.dev.net.lastCQ.Add(1), depth: depth, ring: make([]cqe, size), fd: fd,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}, nil
}

func (c *cq) name() string { return c.dom.dev.node.name }

func (c *cq) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// push queues a completion.
func (c *cq) push(e *cqe, solicited bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.overflowed {
		return
	}
	if c.tail-c.head >= uint64(c.depth) {
		c.overflow()
		return
	}
	c.ring[c.tail&uint64(len(c.ring)-1)] = *e
	c.tail++
	silent := e.wc.Status == fabric.StatusWRFlushErr && c.dom.dev.net.adapter.SilentFlushes
	if !silent && (c.arm == armedAny || c.arm == armedSolicited && (solicited || c.failed(e.wc.Status))) {
		c.raise()
	}
}

// failed reports whether a completion with status s raises an event if c is armed for solicited
// completions only.
func (c *cq) failed(s fabric.Status) bool {
	return s != fabric.StatusSuccess && (s != fabric.StatusWRFlushErr || !c.dom.dev.net.quietFlushes)
}

// raise raises an event. c.mu is held.
func (c *cq) raise() {
	c.arm = disarmed
	c.events++
	if c.useFD {
		c.fd.add()
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// overflow puts c into the error state. It raises an event even if c is not armed, like the
// asynchronous event of a device. c.mu is held.
func (c *cq) overflow() {
	c.overflowed = true
	c.dom.dev.raise(fabric.Event{Type: fabric.EventCQErr, CQ: c.number})
	c.dom.dev.node.overflow.Add(1)
	c.raise()
	c.bg.Add(1)
	go func() {
		defer c.bg.Done()
		c.failQPs()
	}()
}

// Poll implements fabric.CQ.
func (c *cq) Poll(out []fabric.Completion) (int, error) {
	if err := c.dom.dev.refuse("polling a completion queue"); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, fmt.Errorf("polling a completion queue of %s: %w", c.name(), net.ErrClosed)
	}
	n := 0
	for n < len(out) && c.head != c.tail {
		e := &c.ring[c.head&uint64(len(c.ring)-1)]
		out[n] = e.wc
		if e.released != 0 {
			e.qp.released.Store(e.released)
		} else {
			e.qp.rqReleased.Add(1)
		}
		c.head++
		n++
	}
	if n == 0 && c.overflowed {
		return 0, fmt.Errorf("polling a completion queue of %s: %w", c.name(), errOverflow)
	}
	return n, nil
}

// Arm implements fabric.CQ.
func (c *cq) Arm(solicitedOnly bool) error {
	if err := c.dom.dev.refuse("arming a completion queue"); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("arming a completion queue of %s: %w", c.name(), net.ErrClosed)
	}
	if solicitedOnly && c.dom.dev.net.adapter.NoSolicited {
		return fmt.Errorf("arming a completion queue of %s for solicited completions: %w", c.name(), fabric.ErrUnsupported)
	}
	if !solicitedOnly || c.dom.dev.net.adapter.ArmsAny {
		c.arm = armedAny
	} else if c.arm == disarmed {
		c.arm = armedSolicited
	}
	return nil
}

// Moderate implements fabric.Moderator, on a device that has moderation. No event is delayed.
func (c *cq) Moderate(count int, period time.Duration) error {
	fail := func(err error) error {
		return fmt.Errorf("moderating a completion queue of %s: %w", c.name(), err)
	}
	counted := count >= 1 && count <= math.MaxUint16 || count == 0 && period == 0
	switch {
	case c.isClosed():
		return fail(net.ErrClosed)
	case !counted, period < 0 || period > math.MaxUint16*time.Microsecond || period%time.Microsecond != 0:
		return fail(unix.EINVAL)
	case !c.dom.dev.net.limits.Moderation:
		return fail(fabric.ErrUnsupported)
	}
	return nil
}

// FD implements fabric.CQ.
func (c *cq) FD() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return -1
	}
	if !c.useFD { // until the first call, events need no system call
		c.useFD = true
		for range c.events {
			c.fd.add()
		}
	}
	return c.fd.num
}

// take consumes an event, and reports whether there was one. c.mu is held.
func (c *cq) take() bool {
	if c.events == 0 {
		return false
	}
	c.events--
	if c.useFD {
		c.fd.sub()
	}
	return true
}

// ReadEvent implements fabric.CQ.
func (c *cq) ReadEvent() (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false, fmt.Errorf("reading an event of a completion queue of %s: %w", c.name(), net.ErrClosed)
	}
	return c.take(), nil
}

// Wait implements fabric.CQ. The error wraps net.ErrClosed if c is closed, and ctx.Err if ctx is
// done.
func (c *cq) Wait(ctx context.Context) error {
	for {
		c.mu.Lock()
		closed, ok := c.closed, false
		if !closed {
			ok = c.take()
		}
		more := c.events != 0
		c.mu.Unlock()
		switch {
		case closed:
			return fmt.Errorf("waiting for a completion queue of %s: %w", c.name(), net.ErrClosed)
		case ok:
			if more { // one token was for several events: put it back
				select {
				case c.wake <- struct{}{}:
				default:
				}
			}
			return nil
		}
		select {
		case <-c.wake:
		case <-c.done:
		case <-ctx.Done():
			return fmt.Errorf("waiting for a completion queue of %s: %w", c.name(), ctx.Err())
		}
	}
}

// purge removes the completions of q.
func (c *cq) purge(q *qp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mask := uint64(len(c.ring) - 1)
	to := c.head
	for from := c.head; from != c.tail; from++ {
		if e := c.ring[from&mask]; e.qp != q {
			c.ring[to&mask] = e
			to++
		}
	}
	c.tail = to
}

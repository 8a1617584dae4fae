package verbs

// #include "shim.h"
import "C"

import (
	"context"
	"net"
	"syscall"
)

// takeEvent reads one event of the device into pending; it never blocks.
func (c *Context) takeEvent() syscall.Errno {
	c.eventMu.Lock()
	defer c.eventMu.Unlock()
	if c.ctx == nil {
		return syscall.EBADF
	}
	var ev C.struct_snv_event
	if no := syscall.Errno(C.snv_get_async(c.ctx, &ev)); no != 0 {
		return no
	}
	c.pending = append(c.pending, makeEvent(EventType(ev._type), uint32(ev.element)))
	return 0
}

func (c *Context) popEvent() (Event, bool) {
	c.eventMu.Lock()
	defer c.eventMu.Unlock()
	if len(c.pending) == 0 {
		return Event{}, false
	}
	ev := c.pending[0]
	c.pending = c.pending[1:]
	return ev, true
}

// ReadEvent consumes one asynchronous event, if any is pending, and reports
// whether there was one. It never blocks. The event is acknowledged already.
//
// Implements: int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
func (c *Context) ReadEvent() (Event, bool, error) {
	const op = "read asynchronous event"
	if !c.family.enter() {
		return Event{}, false, &OpError{Op: op, Device: c.name, Err: net.ErrClosed}
	}
	defer c.family.leave()
	if ev, ok := c.popEvent(); ok {
		return ev, true, nil
	}
	if no := c.takeEvent(); no != 0 {
		if no == syscall.EAGAIN {
			return Event{}, false, nil
		}
		return Event{}, false, opErr(c.name, op, no, "")
	}
	ev, ok := c.popEvent()
	return ev, ok, nil
}

// WaitEvent consumes one asynchronous event, sleeping in Go's poller until
// there is one, ctx is done or the device is closed.
func (c *Context) WaitEvent(ctx context.Context) (Event, error) {
	for {
		if ev, ok := c.popEvent(); ok {
			return ev, nil
		}
		if err := c.events.wait(ctx); err != nil {
			return Event{}, &OpError{Op: "wait for an asynchronous event", Device: c.name, Err: err}
		}
	}
}

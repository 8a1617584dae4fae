package verbs

// #include "shim.h"
import "C"

import (
	"context"
	"sync"
	"syscall"

	"github.com/splitnic/splitnic/fabric"
)

// eventQueue reads the asynchronous events of a device.
type eventQueue struct {
	poll *pollFD

	mu      sync.Mutex
	ctx     *C.struct_ibv_context // nil once closed
	pending []fabric.Event        // events read from the device and not yet returned
}

// open makes the event descriptor of ctx non-blocking and prepares waiting for it.
func (q *eventQueue) open(ctx *C.struct_ibv_context) syscall.Errno {
	if no := errno(C.snv_nonblock(ctx.async_fd)); no != 0 {
		return no
	}
	q.ctx = ctx
	q.poll = newPollFD(int(ctx.async_fd), q.take)
	return 0
}

// take reads one event from the device into pending. It never blocks.
func (q *eventQueue) take() syscall.Errno {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ctx == nil {
		return syscall.EBADF
	}
	var ev C.struct_snv_event
	if no := errno(C.snv_get_async(q.ctx, &ev)); no != 0 {
		return no
	}
	q.pending = append(q.pending, makeEvent(fabric.EventType(ev._type), uint32(ev.element)))
	return 0
}

func (q *eventQueue) pop() (fabric.Event, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.pending) == 0 {
		return fabric.Event{}, false
	}
	ev := q.pending[0]
	q.pending = q.pending[1:]
	return ev, true
}

// wait consumes one event. It sleeps in Go's poller until there is one.
func (q *eventQueue) wait(ctx context.Context) (fabric.Event, error) {
	for {
		if ev, there := q.pop(); there {
			return ev, nil
		}
		if err := q.poll.wait(ctx); err != nil {
			return fabric.Event{}, err
		}
	}
}

// close makes waiting calls return net.ErrClosed. After close the queue no longer uses the
// device.
func (q *eventQueue) close() error {
	if err := q.poll.close(); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ctx = nil
	return nil
}

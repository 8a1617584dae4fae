package paths

import (
	"errors"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/epoll"
)

// reader takes frames of the netdevice's for one sender: that of a queue of the path
// through the I/O unit, or that of a direct path. What others have read for it is in
// its ring. From queues that it has the right to read the sender reads by itself (input),
// into its slots.
type reader struct {
	uplink bool           // of the path through the I/O unit
	flows  atomic.Bool    // frames may be the reader's to read: always, or while they go directly
	full   *atomic.Uint64 // counts frames for which there was no room
	ring   ring
	event  *epoll.Event // raised when there is something in the ring, or a change
	ep     int          // the event, and the queues that it has the right to read
	rights atomic.Int32 // how many

	// wants is whether the sender takes frames, or will when there are some. It is
	// set by each ReadFrames, and not by Release.
	wants    atomic.Bool
	releases atomic.Uint32 // how often Release was called
	idle     atomic.Bool   // the sender has been told that there is nothing

	slow  atomic.Int32 // how often it has kept others waiting lately: see moving
	until atomic.Int64 // Unix time in nanoseconds until which that counts
}

// Bare errors, made once: a conversion for each call would allocate.
var errAgain error = unix.EAGAIN

// newReader makes a reader. What it watches besides its event is added later.
func newReader(full *atomic.Uint64) (*reader, error) {
	event, err := epoll.NewEvent()
	if err != nil {
		return nil, err
	}
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, errors.Join(os.NewSyscallError("epoll_create1", err), event.Close())
	}
	r := &reader{full: full, event: event, ep: ep}
	if err := r.control(unix.EPOLL_CTL_ADD, event.FD(), unix.EPOLLIN); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *reader) close() error {
	return errors.Join(os.NewSyscallError("close", unix.Close(r.ep)), r.event.Close())
}

func (r *reader) control(op, fd int, events uint32) error {
	ev := unix.EpollEvent{Events: events, Fd: int32(fd)}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(r.ep, op, fd, &ev))
}

// watch has the sender woken by frames in the queue with that descriptor, or not any more. The path through the
// I/O unit has its queue in its set for ever, so that it gets the right to read back
// even when the kernel is short of memory.
func (r *reader) watch(fd int, on bool) error {
	switch {
	case r.uplink && on:
		return r.control(unix.EPOLL_CTL_MOD, fd, unix.EPOLLIN)
	case r.uplink:
		return r.control(unix.EPOLL_CTL_MOD, fd, 0)
	case on:
		return r.control(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN)
	default:
		return r.control(unix.EPOLL_CTL_DEL, fd, 0)
	}
}

// may reports whether frames can be the reader's to read.
func (r *reader) may() bool { return r.flows.Load() }

// forgiven reports whether it was long ago that the reader kept others waiting.
func (r *reader) forgiven() bool { return time.Now().UnixNano() >= r.until.Load() }

// put gives the reader a frame that another one has read from a queue.
func (r *reader) put(frame []byte, queue int) {
	if !r.ring.put(frame, queue) {
		r.full.Add(1)
	}
	if r.idle.Load() && r.ring.ready.Load() && r.idle.Swap(false) {
		r.event.Set()
	}
}

// wake has the sender look again.
func (r *reader) wake() { r.event.Set() }

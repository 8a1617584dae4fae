package paths

import (
	"errors"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/epoll"
)

// reader reads frames of the netdevice for one sender: that of a queue of the path through
// the I/O unit, or that of a direct path. From queues that it has the right to read, the
// sender reads directly into its slots (input). The ring has frames that other readers have
// read for it.
type reader struct {
	uplink bool           // it belongs to the path through the I/O unit
	flows  atomic.Bool    // it may get the right to read: always, or while frames use its path
	full   *atomic.Uint64 // counts frames for which there was no room
	ring   ring
	// most is the size in bytes up to which the ring is enlarged for frames that are put;
	// 0: it is not. Changed under the locks of all queues.
	most   int
	event  *epoll.Event // raised when there are frames in the ring, or after a change
	ep     int          // epoll set of the event and of the queues that it has the right to read
	rights atomic.Int32 // number of these queues

	// wants is true if the sender reads frames, or will when there are some. ReadFrames sets
	// it and Release clears it.
	wants    atomic.Bool
	releases atomic.Uint32 // number of calls of Release
	idle     atomic.Bool   // the last ReadFrames found no frames

	slow  atomic.Int32 // how often it has kept others waiting lately: see moving
	until atomic.Int64 // Unix time in nanoseconds until which slow counts
}

const errAgain = unix.EAGAIN

// newReader returns a reader that watches only its event; queues are added later.
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

// watch makes frames in the queue with descriptor fd wake the sender, or stops that. The
// queue of a reader of the path through the I/O unit always stays in its epoll set, so that
// it gets the right to read back even if the kernel has no memory.
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

// may reports whether the reader may get the right to read.
func (r *reader) may() bool { return r.flows.Load() }

// forgiven reports whether the time has passed for which slow counts.
func (r *reader) forgiven() bool { return time.Now().UnixNano() >= r.until.Load() }

// put puts a frame into the ring that another reader has read from a queue.
func (r *reader) put(frame []byte, queue int) {
	if !r.ring.put(frame, queue, r.most) {
		r.full.Add(1)
	}
	if r.idle.Load() && r.ring.ready.Load() && r.idle.Swap(false) {
		r.event.Set()
	}
}

func (r *reader) wake() { r.event.Set() }

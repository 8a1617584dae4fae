package paths

import (
	"errors"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/vnet"
)

// reader takes frames of the netdevice's for one sender: that of a queue of the path
// through the I/O unit, or that of a direct path. What others have read for it is in
// its ring. From queues that it has the right to read it reads by itself, into the
// sender's slots.
type reader struct {
	split  *Split
	path   *Path // nil: the path through the I/O unit
	queues []*queue
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

	turn int // the queue to be read next; the sender's
	last int // the queue that the latest frames came from; the sender's
}

// skips bounds how often one ReadFrames finds frames of others only.
const skips = 8

// Bare errors, made once: a conversion for each call would allocate.
var errAgain error = unix.EAGAIN

// newReader makes a reader. What it watches besides its event is added later.
func newReader(s *Split, p *Path, queues []*queue) (*reader, error) {
	event, err := epoll.NewEvent()
	if err != nil {
		return nil, err
	}
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, errors.Join(os.NewSyscallError("epoll_create1", err), event.Close())
	}
	r := &reader{split: s, path: p, queues: queues, event: event, ep: ep}
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

// watch has the sender woken by frames in q, or not any more. The path through the
// I/O unit has its queue in its set for ever, so that it gets the right to read back
// even when the kernel is short of memory.
func (r *reader) watch(q *queue, on bool) error {
	switch {
	case r.path == nil && on:
		return r.control(unix.EPOLL_CTL_MOD, q.fd, unix.EPOLLIN)
	case r.path == nil:
		return r.control(unix.EPOLL_CTL_MOD, q.fd, 0)
	case on:
		return r.control(unix.EPOLL_CTL_ADD, q.fd, unix.EPOLLIN)
	default:
		return r.control(unix.EPOLL_CTL_DEL, q.fd, 0)
	}
}

// may reports whether frames can be the reader's to read.
func (r *reader) may() bool { return r.path == nil || r.path.flows.Load() }

// forgiven reports whether it was long ago that the reader kept others waiting.
func (r *reader) forgiven() bool { return time.Now().UnixNano() >= r.until.Load() }

// FD implements messaging.Port.
func (r *reader) FD() int { return r.ep }

// ReadFrames implements messaging.Port.
//
// borrowed: ops and their slots, for the call.
func (r *reader) ReadFrames(ops []vnet.ReadOp) int {
	if len(ops) == 0 {
		return 0
	}
	if !r.wants.Load() {
		r.wants.Store(true)
	}
	if r.idle.Load() {
		r.idle.Store(false)
	}
	r.event.Clear()
	for range skips {
		if n, from := r.ring.take(ops); n > 0 {
			r.last = from
			r.read(ops[:n])
			return n
		}
		n, dry := r.readQueues(ops)
		r.read(ops[:n])
		if dry && n < len(ops) {
			r.idle.Store(true)
			if !r.ring.ready.Load() {
				ops[n].Frame, ops[n].Err = nil, errAgain
				return n + 1
			}
			r.idle.Store(false)
		}
		if n > 0 {
			return n
		}
	}
	ops[0].Frame, ops[0].Err = nil, vnet.ErrFiltered
	return 1
}

// readQueues reads from one of the queues that the reader has the right to read. It is dry
// if there is nothing in any.
func (r *reader) readQueues(ops []vnet.ReadOp) (n int, dry bool) {
	for range r.queues {
		q := r.queues[r.turn]
		if r.turn++; r.turn == len(r.queues) {
			r.turn = 0
		}
		if q.reader.Load() != r && !q.free.Load() {
			continue
		}
		if n, dry = q.read(r, ops); n > 0 || !dry {
			r.last = q.number
			return n, dry && r.rights.Load() == 1
		}
	}
	return 0, true
}

// read counts frames that the sender has got.
func (r *reader) read(ops []vnet.ReadOp) {
	if r.path != nil && len(ops) > 0 {
		r.path.count.sent(ops)
	}
}

// Release implements messaging.SharedPort: until ReadFrames is called again others may
// read.
func (r *reader) Release() {
	if !r.wants.Load() {
		return
	}
	r.releases.Add(1)
	r.wants.Store(false)
	r.idle.Store(false)
	if r.split.table.Load() == nil {
		return // there is nobody else
	}
	for _, q := range r.queues {
		if q.reader.Load() == r {
			q.released()
		}
	}
}

// put gives the reader a frame that another one has read from a queue.
func (r *reader) put(frame []byte, queue int) {
	if !r.ring.put(frame, queue) {
		if r.path != nil {
			r.path.count.full.Add(1)
		} else {
			r.split.count.full.Add(1)
		}
	}
	if r.idle.Load() && r.ring.ready.Load() && r.idle.Swap(false) {
		r.event.Set()
	}
}

// wake has the sender look again.
func (r *reader) wake() { r.event.Set() }

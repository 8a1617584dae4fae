package vhostuser

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/vnet"
)

// Queue is a queue of the device. It is a messaging.Port. It reads from the rings by which the front
// end transmits and whose number, modulo the number of queues in use, is that of the queue. It writes
// to one ring by which the front end receives.
//
// One goroutine may read while another one writes. Neither blocks, except while the front end changes
// its memory.
type Queue struct {
	in, out *waker
	reads   atomic.Pointer[[]*vring]
	writes  atomic.Pointer[vring] // nil: there is none
	turn    int                   // index into reads of the ring read last; used by the reader

	lender *lender
	lendMu sync.Mutex
	to     borrower // argument of ReadLent; used by the reader
	recall func()   // has the borrower return all loans; nil if there is none
}

// lender is the state for lending that a device and its queues share.
type lender struct {
	rings    []*vring      // of the device
	returned chan struct{} // of capacity one: all loans were returned

	mu            sync.Mutex    // guards the following fields; taken after the lock of the device
	memory        *vnet.Memory  // of the front end; nil if there is none
	changed       chan struct{} // closed and replaced when memory changes
	registered    int64         // Status.Registered
	notRegistered error
}

func newLender() *lender {
	return &lender{returned: make(chan struct{}, 1), changed: make(chan struct{})}
}

// lend sets the memory that the queues lend. They lend nothing if m is nil.
func (l *lender) lend(m *vnet.Memory) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.memory = m
	close(l.changed)
	l.changed = make(chan struct{})
}

// status returns the fields of Status about lending.
func (l *lender) status() (registered int64, notRegistered string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.notRegistered != nil {
		notRegistered = l.notRegistered.Error()
	}
	return l.registered, notRegistered
}

func newQueue(l *lender) (*Queue, error) {
	in, err := newWaker()
	if err != nil {
		return nil, err
	}
	out, err := newWaker()
	if err != nil {
		return nil, errors.Join(err, in.close())
	}
	q := &Queue{in: in, out: out, lender: l}
	q.reads.Store(new([]*vring))
	return q, nil
}

// FD returns a descriptor that is readable if ReadFrames may succeed.
func (q *Queue) FD() int { return q.in.ep }

// WriteFD returns a descriptor that is readable if WriteFrames may succeed. See
// messaging.ReadablePort.
func (q *Queue) WriteFD() int { return q.out.ep }

// RoomIsReadable implements messaging.ReadablePort.
func (q *Queue) RoomIsReadable() bool { return true }

// ReadFrames implements messaging.Port. While there are frames it makes no system calls, except calls
// of the front end.
//
// borrowed: ops and their slots, for the call.
func (q *Queue) ReadFrames(ops []vnet.ReadOp) int { return q.readFor(ops, nil) }

// readFor is ReadFrames, or ReadLent if to is not nil.
func (q *Queue) readFor(ops []vnet.ReadOp, to *borrower) int {
	if len(ops) == 0 {
		return 0
	}
	if n := q.read(ops, to, false); n > 0 {
		return n
	}
	q.in.clear()
	if n := q.read(ops, to, true); n > 0 {
		return n
	}
	ops[0].Frame, ops[0].Err = nil, errAgain
	return 1
}

func (q *Queue) read(ops []vnet.ReadOp, to *borrower, sleep bool) int {
	rings := *q.reads.Load()
	for range rings {
		q.turn++
		if q.turn >= len(rings) {
			q.turn = 0
		}
		if n := rings[q.turn].read(ops, to, sleep); n > 0 {
			return n
		}
	}
	return 0
}

// WriteFrames implements messaging.Port. If no front end receives, frames are lost, like those of a
// network card without a cable.
//
// borrowed: ops and their frames, for the call.
func (q *Queue) WriteFrames(ops []vnet.WriteOp) int {
	v := q.writes.Load()
	if v == nil {
		return drop(ops, errDown)
	}
	n := v.write(ops, false)
	for n < len(ops) {
		q.out.clear()
		if v = q.writes.Load(); v == nil {
			return n + drop(ops[n:], errDown)
		}
		// The driver kicks only after a check that has found no room at all.
		more := v.write(ops[n:], true)
		if more == 0 {
			ops[n].Err = errAgain
			break
		}
		n += more
	}
	return n
}

func (q *Queue) close() error { return errors.Join(q.in.close(), q.out.close()) }

package vhostuser

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/vnet"
)

// Queue is one queue of the device, a messaging.Port: it has the frames of the rings by
// which the front end transmits, those whose number is its own modulo that of the queues
// in use, and one by which the front end receives.
//
// One goroutine may read while another one writes. Neither blocks, but for the time in
// which the front end changes its memory.
type Queue struct {
	in, out *waker
	reads   atomic.Pointer[[]*vring]
	writes  atomic.Pointer[vring] // nil: the front end receives by none
	turn    int                   // of reads: the one to begin with; the reader's

	lender *lender
	lendMu sync.Mutex
	to     borrower // of ReadLent; the reader's
	recall func()   // has the borrower return what it has; nil if there is none
}

// lender is what the queues of a device have in common with it for lending.
type lender struct {
	rings    []*vring      // of the device
	returned chan struct{} // of capacity one: all that was lent is back

	mu            sync.Mutex    // guards what follows; taken after the device's
	memory        *vnet.Memory  // of the front end; nil if there is none
	changed       chan struct{} // closed and made again when memory is another
	registered    int64         // Status.Registered
	notRegistered error
}

func newLender() *lender {
	return &lender{returned: make(chan struct{}, 1), changed: make(chan struct{})}
}

// lend has the queues lend memory from now on, or nothing if it is nil.
func (l *lender) lend(m *vnet.Memory) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.memory = m
	close(l.changed)
	l.changed = make(chan struct{})
}

// status is what Status says of lending.
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

// FD is readable when ReadFrames may succeed.
func (q *Queue) FD() int { return q.in.ep }

// WriteFD is readable when WriteFrames may succeed: see messaging.ReadablePort.
func (q *Queue) WriteFD() int { return q.out.ep }

// RoomIsReadable implements messaging.ReadablePort.
func (q *Queue) RoomIsReadable() bool { return true }

// ReadFrames implements messaging.Port. While there are frames it makes no system call,
// but for those by which the front end wants to be called.
//
// borrowed: ops and their slots, for the call.
func (q *Queue) ReadFrames(ops []vnet.ReadOp) int { return q.readFor(ops, nil) }

// readFor is ReadFrames for who borrows, if to is not nil.
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

// WriteFrames implements messaging.Port. Without a front end that receives, frames are
// lost, as they are on a card whose cable is unplugged.
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
		// The driver kicks only after a look that has found no room at all.
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

package bench

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// sending is the state that the ports of the sending side of one direction share.
type sending struct {
	spec  *Spec
	chunk int64
	left  atomic.Int64 // timed messages that no port has claimed; none if negative

	opening sync.Once   // at the first timed message
	before  usage       // at the first timed message
	opened  atomic.Bool // the opening has begun

	reporting sync.Once
	reported  chan struct{} // closed when report is set
	report    report
}

// newSending returns the state for s. Each port sends one message that is not counted, to start the
// time, and a last one that it has not claimed.
func newSending(s *Spec) *sending {
	x := &sending{spec: s, reported: make(chan struct{})}
	if s.Duration > 0 {
		x.chunk = 16
		x.left.Store(math.MaxInt64 / 2)
		return x
	}
	n := int64(s.Iterations) - int64(s.Queues)
	x.chunk = min(max(n/int64(16*s.Queues), 1), 64)
	x.left.Store(n)
	return x
}

// claim returns the number of messages that a port may send, or 0 if none are left.
func (x *sending) claim() int64 {
	left := x.left.Add(-x.chunk)
	return max(0, min(x.chunk, left+x.chunk))
}

// open records that the measurement begins. After its duration, no messages are left to claim.
func (x *sending) open() {
	if x.opened.Load() {
		return
	}
	x.opening.Do(func() {
		x.opened.Store(true)
		x.before = use()
		if x.spec.Duration > 0 {
			time.AfterFunc(x.spec.Duration, func() { x.left.Store(0) })
		}
	})
}

// settle records the first report of the receiver.
func (x *sending) settle(r report) {
	x.reporting.Do(func() {
		x.report = r
		close(x.reported)
	})
}

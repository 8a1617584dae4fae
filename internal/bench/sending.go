package bench

import (
	"math"
	"sync"
	"sync/atomic"
)

// sending is the state that the ports of the sending side of one direction share.
type sending struct {
	chunk int64
	left  atomic.Int64 // timed messages that no port has claimed; none if negative

	opening  sync.Once
	opened   chan struct{} // closed when the first timed message is sent
	before   usage         // when opened was closed
	claiming atomic.Bool   // opened is closed, or will be at once

	reporting sync.Once
	reported  chan struct{} // closed when report is set
	report    report
}

// newSending returns the state for s. Each port sends one message that is not counted, to start the
// time, and a last one that it has not claimed.
func newSending(s *Spec) *sending {
	x := &sending{opened: make(chan struct{}), reported: make(chan struct{})}
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

// stop leaves no messages to claim.
func (x *sending) stop() { x.left.Store(0) }

// open records that the measurement begins.
func (x *sending) open() {
	if x.claiming.Load() {
		return
	}
	x.opening.Do(func() {
		x.claiming.Store(true)
		x.before = use()
		close(x.opened)
	})
}

// settle records the first report of the receiver.
func (x *sending) settle(r report) {
	x.reporting.Do(func() {
		x.report = r
		close(x.reported)
	})
}

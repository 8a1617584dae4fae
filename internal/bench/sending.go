package bench

import (
	"math"
	"sync"
	"sync/atomic"
)

// sending is the sending side of one direction: what its ports share.
type sending struct {
	chunk int64
	left  atomic.Int64 // timed messages that no port has claimed yet; negative is none

	opening  sync.Once
	opened   chan struct{} // closed when the first timed message is sent
	before   usage         // then
	claiming atomic.Bool   // whether that has been

	reporting sync.Once
	reported  chan struct{} // closed when report is there
	report    report
}

// newSending is for what s says. Each port sends one message that does not
// count, to start the clock, and a last one that it has not claimed.
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

// claim gives a port messages to send; 0 when all are given out.
func (x *sending) claim() int64 {
	left := x.left.Add(-x.chunk)
	return max(0, min(x.chunk, left+x.chunk))
}

// stop leaves nothing to claim.
func (x *sending) stop() { x.left.Store(0) }

// open notes that the measurement begins.
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

// settle notes the receiver's report, of which only the first counts.
func (x *sending) settle(r report) {
	x.reporting.Do(func() {
		x.report = r
		close(x.reported)
	})
}

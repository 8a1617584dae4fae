package bench

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// peakInterval is the shortest interval over which the peak rate is measured.
const peakInterval = 20 * time.Millisecond

// receiving is the state that the ports of the receiving side of one direction share.
type receiving struct {
	queues []*atomic.Uint64 // counts of timed messages, written by the ports
	done   chan struct{}    // closed when all queues have ended and report is set

	mu     sync.Mutex // guards the following fields; taken only at the beginning and end of a queue, and by sample
	begin  time.Time
	before usage
	ended  int
	peak   float64
	report report
}

func newReceiving() *receiving {
	return &receiving{done: make(chan struct{})}
}

// open starts the time, at the first timed message of any queue.
func (x *receiving) open() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.begin.IsZero() {
		x.before = use()
		x.begin = time.Now()
	}
}

// end records that a queue has ended. It stops the time and returns true if that was the last queue.
func (x *receiving) end() bool {
	now := time.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended++; x.ended != len(x.queues) {
		return false
	}
	used := use().since(x.before)
	x.report = report{Messages: x.count(), Time: max(now.Sub(x.begin), 1), CPU: used.cpu, Allocations: used.allocs}
	x.report.PeakRate = max(x.peak, float64(x.report.Messages)/x.report.Time.Seconds())
	close(x.done)
	return true
}

// count returns the number of timed messages that have arrived.
func (x *receiving) count() uint64 {
	n := uint64(0)
	for _, got := range x.queues {
		n += got.Load()
	}
	return n
}

// sample measures the peak rate until all queues have ended, or stop is closed.
func (x *receiving) sample(stop <-chan struct{}) {
	tick := time.NewTicker(peakInterval)
	defer tick.Stop()
	then, before := time.Now(), x.count()
	for {
		select {
		case <-tick.C:
		case <-x.done:
			return
		case <-stop:
			return
		}
		now, count := time.Now(), x.count()
		d := now.Sub(then)
		if d < peakInterval {
			continue // the tick before was late
		}
		x.mu.Lock()
		x.peak = max(x.peak, float64(count-before)/d.Seconds())
		x.mu.Unlock()
		then, before = now, count
	}
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

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

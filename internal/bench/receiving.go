package bench

import (
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

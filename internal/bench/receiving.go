package bench

import (
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"
)

// peakInterval is how long at least a rate lasts that can be the peak.
const peakInterval = 20 * time.Millisecond

// receiving is the receiving side of one direction: what its ports share.
type receiving struct {
	queues []*atomic.Uint64 // counts of timed messages, which the ports write
	opened chan struct{}    // closed when the clock runs
	done   chan struct{}    // closed when the last queue has ended, and report is there

	mu     sync.Mutex // of the rest; taken at a queue's beginning and end only
	begin  time.Time
	before usage
	ended  int
	peak   float64
	report report
	text   []byte // in JSON
}

func newReceiving() *receiving {
	return &receiving{opened: make(chan struct{}), done: make(chan struct{})}
}

// open starts the clock at the first timed message of any queue.
func (x *receiving) open() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.begin.IsZero() {
		x.before = use()
		x.begin = time.Now()
		close(x.opened)
	}
}

// end stops it at the last one of the last queue, and reports whether this
// was it.
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
	x.text, _ = json.Marshal(x.report) // of numbers, which cannot fail
	close(x.done)
	return true
}

// over reports whether all queues have ended.
func (x *receiving) over() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.text != nil
}

// count is how many timed messages have come.
func (x *receiving) count() uint64 {
	n := uint64(0)
	for _, got := range x.queues {
		n += got.Load()
	}
	return n
}

// sample looks for the highest rate until the end, or until stop is closed.
func (x *receiving) sample(stop <-chan struct{}) {
	select {
	case <-x.opened:
	case <-stop:
		return
	}
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
			continue // a tick that came late, and one in time
		}
		x.mu.Lock()
		x.peak = max(x.peak, float64(count-before)/d.Seconds())
		x.mu.Unlock()
		then, before = now, count
	}
}

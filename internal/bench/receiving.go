package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// report is what the receiver of a direction counted.
type report struct {
	Messages    uint64        `json:"messages"`
	Time        time.Duration `json:"nanoseconds"`     // from the first timed message to the last
	PeakRate    float64       `json:"peak_rate"`       // messages per second, the best while it lasted
	CPU         time.Duration `json:"cpu_nanoseconds"` // of the receiver's process
	Allocations uint64        `json:"allocations"`     // there
}

// maxReport is more than a report in JSON takes.
const maxReport = 512

var errReport = errors.New("bench: the other end's report makes no sense")

func parseReport(b []byte) (report, error) {
	var r report
	if err := json.Unmarshal(b, &r); err != nil {
		return report{}, fmt.Errorf("%w: %w", errReport, err)
	}
	if r.Time < 0 || r.CPU < 0 || r.PeakRate < 0 {
		return report{}, fmt.Errorf("%w: %+v", errReport, r)
	}
	return r, nil
}

// peakInterval is how long at least a rate lasts that can be the peak.
const peakInterval = 20 * time.Millisecond

// receiving is the receiving side of one direction: what its ports share.
type receiving struct {
	ports  []*flood
	opened chan struct{} // closed when the clock runs
	done   chan struct{} // closed when the last queue has ended, and report is there

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
	if x.ended++; x.ended != len(x.ports) {
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
	for _, p := range x.ports {
		n += p.got.Load()
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

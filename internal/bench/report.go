package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// report has the counts of the receiver of a direction.
type report struct {
	Messages    uint64        `json:"messages"`
	Time        time.Duration `json:"nanoseconds"`     // from the first timed message to the last
	PeakRate    float64       `json:"peak_rate"`       // messages per second
	CPU         time.Duration `json:"cpu_nanoseconds"` // used by the receiver's process
	Allocations uint64        `json:"allocations"`     // by the receiver's process
}

// maxReport is larger than any report in JSON.
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

// usage has the resources that this process has used since its start.
type usage struct {
	cpu    time.Duration
	allocs uint64
}

// use returns the usage. It stops all goroutines for a moment, to count the allocations of all
// threads.
func use() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{CPU(), m.Mallocs}
}

// CPU returns the processor time that this process has used, user and system.
func CPU() time.Duration {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) != nil {
		return 0 // cannot fail
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func (u usage) since(then usage) usage { return usage{u.cpu - then.cpu, u.allocs - then.allocs} }

package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
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

package hosts

import (
	"os"
	"runtime/metrics"
	"time"
)

// idle is what the hosts and the I/O unit use while no frame passes: all together, or for
// each host, of both endpoints.
type idle struct {
	processor   float64 // of one
	wakeups     float64 // of goroutines, in a second; steadier beside load than the above
	goroutines  float64
	descriptors float64
	memory      float64 // bytes that have been touched
	registered  float64 // bytes
}

// beginIdle begins to measure, and returns what ends that.
func beginIdle(hosts int) (end func() (idle, error)) {
	began, before, woken := time.Now(), used(), wakeups()
	return func() (idle, error) {
		took := time.Since(began).Seconds()
		n := float64(hosts)
		i := idle{processor: (used() - before).Seconds() / took, wakeups: (wakeups() - woken) / took / n}
		sample := []metrics.Sample{{Name: "/sched/goroutines:goroutines"}}
		metrics.Read(sample)
		i.goroutines = float64(sample[0].Value.Uint64()) / n
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return i, err
		}
		i.descriptors = float64(len(open)) / n
		touched, err := resident()
		i.memory = float64(touched) / n
		return i, err
	}
}

// sampled is how many wake-ups there are to one whose latency the runtime measures.
const sampled = 8

// wakeups is how often goroutines of this process have been woken so far.
func wakeups() (n float64) {
	sample := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(sample)
	for _, count := range sample[0].Value.Float64Histogram().Counts {
		n += sampled * float64(count)
	}
	return n
}

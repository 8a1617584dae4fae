package hosts

import (
	"os"
	"runtime/metrics"
	"time"
)

// idle is what the hosts and the I/O unit use while no frames pass. All values but processor are
// per host, for both endpoints.
type idle struct {
	processor   float64 // of all hosts together; 1: one processor
	wakeups     float64 // wake-ups of goroutines per second; steadier beside load than processor
	goroutines  float64
	descriptors float64
	memory      float64 // bytes that have been touched
	registered  float64 // bytes
}

// beginIdle begins a measurement, and returns the function that ends it.
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

// sampled is the number of wake-ups for each wake-up whose latency the runtime measures.
const sampled = 8

// wakeups returns how often goroutines of this process have been woken so far.
func wakeups() (n float64) {
	sample := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(sample)
	for _, count := range sample[0].Value.Float64Histogram().Counts {
		n += sampled * float64(count)
	}
	return n
}

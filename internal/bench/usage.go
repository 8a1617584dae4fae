package bench

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

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
	return usage{cpuTime(), m.Mallocs}
}

// cpuTime returns the processor time of this process, user and system.
func cpuTime() time.Duration {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) != nil {
		return 0 // cannot fail
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func (u usage) since(then usage) usage { return usage{u.cpu - then.cpu, u.allocs - then.allocs} }

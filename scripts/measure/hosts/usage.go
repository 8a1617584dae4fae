package hosts

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// used returns the processor time that this process has used.
func used() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails only for a bad argument
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resident returns how many bytes of memory this process has touched.
func resident() (uint64, error) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	var size, pages uint64
	if _, err := fmt.Sscan(string(b), &size, &pages); err != nil {
		return 0, fmt.Errorf("/proc/self/statm: %w", err)
	}
	return pages * uint64(os.Getpagesize()), nil
}

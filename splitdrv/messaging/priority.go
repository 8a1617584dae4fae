package messaging

import (
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// ownPriority is the nice value that this process had when it was first asked
// for. Later its main thread may be a worker's.
var ownPriority = sync.OnceValue(func() int { return niceOf(0) })

// niceOf is the nice value of thread tid, 0 for the calling one. The system
// call returns 20 minus that (getpriority(2)).
func niceOf(tid int) int {
	n, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
	if err != nil {
		return 0 // as it is unless somebody has changed it
	}
	return 20 - n
}

// tryPriority tries to go from one priority to the other, on a thread that ends
// with that, unless it can be as it was: 0 is the process's own priority.
func tryPriority(from, to int) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		set := func(n int) error {
			if n == 0 {
				n = ownPriority()
			}
			return os.NewSyscallError("setpriority", unix.Setpriority(unix.PRIO_PROCESS, 0, n))
		}
		err := set(from)
		if err == nil {
			err = set(to)
		}
		if set(0) == nil {
			runtime.UnlockOSThread()
		}
		result <- err
	}()
	return <-result
}

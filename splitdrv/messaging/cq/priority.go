package cq

import (
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// ownPriority returns the nice value of this process at the time of the first call. Later
// its main thread may be that of a worker with another value.
var ownPriority = sync.OnceValue(func() int { return niceOf(0) })

// niceOf returns the nice value of thread tid; 0 is the calling thread. The system call
// returns 20 minus that value (getpriority(2)).
func niceOf(tid int) int {
	n, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
	if err != nil {
		return 0 // the usual value
	}
	return 20 - n
}

// tryPriority tries whether a thread may change its priority from from to to; 0 is the
// priority of the process. The thread that tries ends afterwards, unless its priority can
// be reset.
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

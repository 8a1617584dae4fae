// Package eventfd reads and writes eventfd(2) descriptors that do not block.
//
// It does not announce these system calls to Go's runtime. The runtime's monitor thread
// sleeps if there was no work for some time, and an announced system call wakes it. The
// monitor would compete for a processor with the thread that waits for the event.
package eventfd

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

var one = uint64(1)

// Raise adds one to the counter. The descriptor must have EFD_NONBLOCK, and no other process
// may be able to clear it: a blocking call would stop other goroutines too.
func Raise(fd int) error {
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&one)), unsafe.Sizeof(one))
	return failed(errno)
}

// Lower reads the counter into buf and resets it, or subtracts one if the descriptor has
// EFD_SEMAPHORE. It returns unix.EAGAIN if the counter is 0. The descriptor has to be as for
// Raise.
func Lower(fd int, buf *uint64) error {
	_, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(buf)), unsafe.Sizeof(*buf))
	return failed(errno)
}

// errAgain is converted once, because a conversion allocates.
var errAgain error = unix.EAGAIN

func failed(errno syscall.Errno) error {
	switch errno {
	case 0:
		return nil
	case unix.EAGAIN:
		return errAgain
	default:
		return errno
	}
}

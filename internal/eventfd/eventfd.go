// Package eventfd raises and lowers eventfd(2) descriptors that never block.
//
// Go's runtime is not told of these system calls. After a longer time without work its
// monitor sleeps, and the next system call that it is told of wakes it: a thread more that
// wants a processor, between the one that raises an event and the one that waits for it.
package eventfd

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

var one = uint64(1)

// Raise adds one to the counter. The descriptor has EFD_NONBLOCK, and nobody else can take that
// away from it: it would stop more than its goroutine.
func Raise(fd int) error {
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&one)), unsafe.Sizeof(one))
	return failed(errno)
}

// Lower takes the counter, or one of it if the descriptor has EFD_SEMAPHORE, to buf. It is
// unix.EAGAIN if there is nothing to take. The descriptor is one as Raise wants it.
func Lower(fd int, buf *uint64) error {
	_, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(buf)), unsafe.Sizeof(*buf))
	return failed(errno)
}

// errAgain is made once: a conversion for each call would allocate.
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

// Package framefd is a descriptor that moves one frame in each read or write:
// a queue of a TAP or macvtap device, or a packet socket.
package framefd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/uring"
)

// Bare errors, made once: a conversion for each call would allocate.
var (
	errAgain error = unix.EAGAIN
	errInval error = unix.EINVAL
)

// FD is a non-blocking descriptor. One goroutine may read while another one
// writes; Close may be called meanwhile. No call blocks or allocates.
type FD struct {
	fd      int
	closed  atomic.Bool
	reading atomic.Bool
	writing atomic.Bool
	iov     [2]unix.Iovec // arguments of writev(2), the writer's own

	reads, writes *uring.Ring // nil for none
	sendBuffer    int         // bytes of frames that wait before a write is refused
}

// New takes over fd, which has to be non-blocking: reads and writes are made
// without the Go scheduler's knowledge.
func New(fd int) *FD { return &FD{fd: fd} }

// Int is the descriptor's number, for poll(2) and ioctl(2). It belongs to f.
func (f *FD) Int() int { return f.fd }

// Read is read(2). A non-nil error is bare: a unix.Errno, or net.ErrClosed
// after Close.
//
// borrowed: buf, for the call.
func (f *FD) Read(buf []byte) (int, error) {
	return f.Receive(unix.SYS_READ, unsafe.Pointer(unsafe.SliceData(buf)), uintptr(len(buf)))
}

// Receive is Read by another system call, such as SYS_RECVMSG, with the second
// and third argument of the caller's choice.
//
// borrowed: what arg2 points to, for the call.
func (f *FD) Receive(trap uintptr, arg2 unsafe.Pointer, arg3 uintptr) (int, error) {
	f.reading.Store(true)
	if f.closed.Load() {
		f.reading.Store(false)
		return 0, net.ErrClosed
	}
	n, errno := f.call(trap, arg2, arg3, 0)
	f.reading.Store(false)
	return int(n), Bare(errno)
}

// Write is write(2), with errors as of Read.
//
// borrowed: buf, for the call.
func (f *FD) Write(buf []byte) error {
	f.writing.Store(true)
	if f.closed.Load() {
		f.writing.Store(false)
		return net.ErrClosed
	}
	_, errno := f.call(unix.SYS_WRITE, unsafe.Pointer(unsafe.SliceData(buf)), uintptr(len(buf)), 0)
	f.writing.Store(false)
	return Bare(errno)
}

func (f *FD) call(trap uintptr, arg2 unsafe.Pointer, arg3, arg4 uintptr) (n uintptr, errno unix.Errno) {
	for {
		n, _, errno = unix.RawSyscall6(trap, uintptr(f.fd), uintptr(arg2), arg3, arg4, 0, 0)
		if errno != unix.EINTR {
			return n, errno
		}
	}
}

// Bare returns errno as an error, without an allocation.
func Bare(errno unix.Errno) error {
	switch errno {
	case 0:
		return nil
	case unix.EAGAIN:
		return errAgain
	case unix.EINVAL:
		return errInval
	}
	return errno
}

// Close closes the descriptor once no read or write is under way. Calls that
// begin later return net.ErrClosed. A poll(2) by somebody else has to be over:
// the number may be in use for something else afterwards. It is idempotent.
func (f *FD) Close() error {
	if f.closed.Swap(true) {
		return nil
	}
	// Neither call blocks, so this takes microseconds.
	for f.reading.Load() || f.writing.Load() {
		runtime.Gosched()
	}
	if err := errors.Join(f.closeRings(), os.NewSyscallError("close", unix.Close(f.fd))); err != nil {
		return fmt.Errorf("closing queue: %w", err)
	}
	return nil
}

// closeRings frees the rings. Nobody uses them any more.
func (f *FD) closeRings() error {
	if f.reads == nil {
		return nil
	}
	return errors.Join(f.reads.Close(), f.writes.Close())
}

// Package framefd reads and writes descriptors that move one frame in each read or write: a
// queue of a TAP or macvtap device, or a packet socket.
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

// FD is a non-blocking descriptor. One goroutine may read while another one
// writes; Close may be called meanwhile. No call blocks or allocates.
type FD struct {
	fd      int
	closed  atomic.Bool
	reading atomic.Bool
	writing atomic.Bool
	iov     [2]unix.Iovec // arguments of writev(2); only the writer uses them

	reads, writes *uring.Ring // nil for none
	sendBuffer    int         // bytes of waiting frames after which a write is refused
}

// New takes over fd, which has to be non-blocking: reads and writes are made
// without the Go scheduler's knowledge.
func New(fd int) *FD { return &FD{fd: fd} }

// Int returns the descriptor, for poll(2) and ioctl(2). It belongs to f.
func (f *FD) Int() int { return f.fd }

// Read calls read(2). Errors are not wrapped: a unix.Errno, or net.ErrClosed after Close.
//
// borrowed: buf, for the call.
func (f *FD) Read(buf []byte) (int, error) {
	return f.Receive(unix.SYS_READ, unsafe.Pointer(unsafe.SliceData(buf)), uintptr(len(buf)))
}

// Receive is Read with another system call, such as SYS_RECVMSG, and with the given second and
// third arguments.
//
// borrowed: what arg2 points to, for the call.
func (f *FD) Receive(trap uintptr, arg2 unsafe.Pointer, arg3 uintptr) (int, error) {
	return f.call(&f.reading, trap, arg2, arg3, 0)
}

// ReceiveMany calls recvmmsg(2) with these flags, on a socket, and returns how many messages
// were received. Errors are as for Read.
//
// borrowed: messages and what they refer to, for the call.
func (f *FD) ReceiveMany(messages []unix.Mmsghdr, flags uintptr) (int, error) {
	return f.call(&f.reading, unix.SYS_RECVMMSG, unsafe.Pointer(unsafe.SliceData(messages)), uintptr(len(messages)), flags)
}

// Write calls write(2). Errors are as for Read.
//
// borrowed: buf, for the call.
func (f *FD) Write(buf []byte) error {
	_, err := f.call(&f.writing, unix.SYS_WRITE, unsafe.Pointer(unsafe.SliceData(buf)), uintptr(len(buf)), 0)
	return err
}

// Writev is Write for a frame in two parts, by writev(2).
//
// borrowed: head and rest, for the call.
func (f *FD) Writev(head, rest []byte) error {
	f.iov[0].Base, f.iov[1].Base = unsafe.SliceData(head), unsafe.SliceData(rest)
	f.iov[0].SetLen(len(head))
	f.iov[1].SetLen(len(rest))
	_, err := f.call(&f.writing, unix.SYS_WRITEV, unsafe.Pointer(&f.iov[0]), uintptr(len(f.iov)), 0)
	f.iov = [2]unix.Iovec{}
	return err
}

// SendMany calls sendmmsg(2), on a socket, and returns how many messages were sent before the
// first one that could not be sent. If that is the first message SendMany returns its error, as
// Write does. Errors of other messages are not reported.
//
// borrowed: messages and what they refer to, for the call.
func (f *FD) SendMany(messages []unix.Mmsghdr) (int, error) {
	return f.call(&f.writing, unix.SYS_SENDMMSG, unsafe.Pointer(unsafe.SliceData(messages)), uintptr(len(messages)), 0)
}

// call makes a system call on the descriptor. busy is reading or writing.
func (f *FD) call(busy *atomic.Bool, trap uintptr, arg2 unsafe.Pointer, arg3, arg4 uintptr) (int, error) {
	if !f.enter(busy) {
		return 0, net.ErrClosed
	}
	for {
		n, _, errno := unix.RawSyscall6(trap, uintptr(f.fd), uintptr(arg2), arg3, arg4, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		busy.Store(false)
		if errno != 0 {
			return 0, Bare(errno)
		}
		return int(n), nil
	}
}

// enter sets busy, for which Close waits, unless the descriptor is closed.
func (f *FD) enter(busy *atomic.Bool) bool {
	busy.Store(true)
	if f.closed.Load() {
		busy.Store(false)
		return false
	}
	return true
}

// Bare returns errno as an error without wrapping and without an allocation.
func Bare(errno unix.Errno) error {
	switch errno {
	case 0:
		return nil
	case unix.EAGAIN: // a constant: no conversion at run time
		return unix.EAGAIN
	case unix.EINVAL:
		return unix.EINVAL
	}
	return errno
}

// Close waits for reads and writes in progress and closes the descriptor. Calls that begin
// later return net.ErrClosed. No goroutine may still use the descriptor for poll(2): the number
// may be that of another file afterwards. Close is idempotent.
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

// closeRings frees the rings, which must not be in use any more.
func (f *FD) closeRings() error {
	if f.reads == nil {
		return nil
	}
	return errors.Join(f.reads.Close(), f.writes.Close())
}

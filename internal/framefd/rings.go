package framefd

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/uring"
)

// UseRings lets several reads, and several writes, of a TAP-like device take one
// system call. It is called before the first of them; the size of the device's
// send buffer must not change afterwards. After an error, which wraps
// uring.ErrUnsupported where the kernel or the device cannot do it, everything
// is as before.
func (f *FD) UseRings() (err error) {
	if err := f.learnSendBuffer(); err != nil {
		return fmt.Errorf("learning the size of the send buffer: %w", err)
	}
	reads, err := uring.New(f.fd)
	if err != nil {
		return err
	}
	writes, err := uring.New(f.fd)
	if err != nil {
		return errors.Join(err, reads.Close())
	}
	f.reads, f.writes = reads, writes
	return nil
}

// learnSendBuffer asks a TAP device for its send buffer. A macvtap, which does
// not tell, is given the one that it has from the start: as every socket.
func (f *FD) learnSendBuffer() error {
	size, err := unix.IoctlGetInt(f.fd, unix.TUNGETSNDBUF)
	if err == nil {
		f.sendBuffer = size
		return nil
	}
	if !errors.Is(err, unix.EINVAL) {
		return os.NewSyscallError("ioctl TUNGETSNDBUF", err)
	}
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(s)
	if size, err = unix.GetsockoptInt(s, unix.SOL_SOCKET, unix.SO_SNDBUF); err != nil {
		return os.NewSyscallError("getsockopt SO_SNDBUF", err)
	}
	if err := unix.IoctlSetPointerInt(f.fd, unix.TUNSETSNDBUF, size); err != nil {
		return os.NewSyscallError("ioctl TUNSETSNDBUF", err)
	}
	f.sendBuffer = size
	return nil
}

// Rings reports whether UseRings has succeeded.
func (f *FD) Rings() bool { return f.reads != nil }

// Enters returns how many system calls the rings have taken for reads and for
// writes.
func (f *FD) Enters() (reads, writes uint64) {
	if f.reads == nil {
		return 0, 0
	}
	return f.reads.Enters(), f.writes.Enters()
}

// BeginReads gives the reader the ring for its reads. There is one, and it is
// the reader's until EndReads, before which the descriptor cannot be closed.
// The error is net.ErrClosed.
func (f *FD) BeginReads() (*uring.Ring, error) {
	f.reading.Store(true)
	if f.closed.Load() {
		f.reading.Store(false)
		return nil, net.ErrClosed
	}
	return f.reads, nil
}

// EndReads gives the ring back.
func (f *FD) EndReads() { f.reading.Store(false) }

// BeginWrites is BeginReads for the writer, until EndWrites.
func (f *FD) BeginWrites() (*uring.Ring, error) {
	f.writing.Store(true)
	if f.closed.Load() {
		f.writing.Store(false)
		return nil, net.ErrClosed
	}
	return f.writes, nil
}

// EndWrites gives the ring back.
func (f *FD) EndWrites() { f.writing.Store(false) }

// Room returns how much can be written, measured in Charge, before the device
// may refuse a write because it is full: of several writes in a ring the kernel
// makes those behind one that is refused, and they would overtake it. The
// caller is the writer, between BeginWrites and EndWrites.
func (f *FD) Room() int {
	if f.sendBuffer == math.MaxInt32 {
		return math.MaxInt // as TAP devices have it: they drop instead
	}
	// Writable is said of a device whose buffer is filled by less than half.
	poll := unix.PollFd{Fd: int32(f.fd), Events: unix.POLLOUT}
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&poll)), 1, uintptr(unsafe.Pointer(&zero)), 0,
		0, 0)
	if errno != 0 || n != 1 || poll.Revents != unix.POLLOUT {
		return 0
	}
	return f.sendBuffer / 2
}

// zero is no time at all, for ppoll(2).
var zero unix.Timespec

// Charge is at least what a frame of n bytes, less than a page, takes of a send
// buffer: its memory is rounded up to a power of two, and some of the kernel's
// own comes on top.
func Charge(n int) int { return 2*n + 1024 }

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

// UseRings lets several reads, or several writes, of a TAP-like device take one system call. It
// must be called before the first of them. The size of the device's send buffer must not change
// afterwards. An error leaves everything as it was. It wraps uring.ErrUnsupported if the kernel
// or the device does not support rings.
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

// learnSendBuffer reads the size of a TAP device's send buffer. A macvtap does not report the
// size. learnSendBuffer sets it to the initial one, which is that of every socket.
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

// BeginReads returns the ring for reads. UseRings must have succeeded. The reader may use the
// ring until EndReads, and Close waits for EndReads. The only error is net.ErrClosed.
func (f *FD) BeginReads() (*uring.Ring, error) {
	if !f.enter(&f.reading) {
		return nil, net.ErrClosed
	}
	return f.reads, nil
}

// EndReads gives the ring back.
func (f *FD) EndReads() { f.reading.Store(false) }

// BeginWrites is BeginReads for the writer, until EndWrites.
func (f *FD) BeginWrites() (*uring.Ring, error) {
	if !f.enter(&f.writing) {
		return nil, net.ErrClosed
	}
	return f.writes, nil
}

// EndWrites gives the ring back.
func (f *FD) EndWrites() { f.writing.Store(false) }

// Room returns how much can be written, as a sum of Charge, before the device may refuse a write
// because it is full. If the device refuses one of several writes in a ring, the kernel still
// makes the writes behind it: their frames would overtake the refused one. Only the writer may
// call Room, between BeginWrites and EndWrites.
func (f *FD) Room() int {
	if f.sendBuffer == math.MaxInt32 {
		return math.MaxInt // the default of TAP devices, which drop frames instead
	}
	// A device is writable if less than half of its send buffer is in use.
	poll := unix.PollFd{Fd: int32(f.fd), Events: unix.POLLOUT}
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&poll)), 1, uintptr(unsafe.Pointer(&zero)), 0,
		0, 0)
	if errno != 0 || n != 1 || poll.Revents != unix.POLLOUT {
		return 0
	}
	return f.sendBuffer / 2
}

// zero is a timeout of 0 for ppoll(2).
var zero unix.Timespec

// Charge returns an upper limit of the bytes that a frame of n bytes, less than a page, takes of
// a send buffer. The kernel rounds the frame's memory up to a power of two, and adds some of its
// own.
func Charge(n int) int { return 2*n + 1024 }

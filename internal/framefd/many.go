package framefd

import (
	"net"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ReceiveMany calls recvmmsg(2) with these flags, on a socket, and returns how many messages
// were received. Errors are as for Read.
//
// borrowed: messages and what they refer to, for the call.
func (f *FD) ReceiveMany(messages []unix.Mmsghdr, flags uintptr) (int, error) {
	f.reading.Store(true)
	if f.closed.Load() {
		f.reading.Store(false)
		return 0, net.ErrClosed
	}
	n, errno := f.call(unix.SYS_RECVMMSG, unsafe.Pointer(unsafe.SliceData(messages)), uintptr(len(messages)), flags)
	f.reading.Store(false)
	if errno != 0 {
		return 0, Bare(errno)
	}
	return int(n), nil
}

// SendMany calls sendmmsg(2), on a socket, and returns how many messages were sent before the
// first one that could not be sent. If that is the first message SendMany returns its error, as
// Write does. Errors of other messages are not reported.
//
// borrowed: messages and what they refer to, for the call.
func (f *FD) SendMany(messages []unix.Mmsghdr) (int, error) {
	f.writing.Store(true)
	if f.closed.Load() {
		f.writing.Store(false)
		return 0, net.ErrClosed
	}
	n, errno := f.call(unix.SYS_SENDMMSG, unsafe.Pointer(unsafe.SliceData(messages)), uintptr(len(messages)), 0)
	f.writing.Store(false)
	if errno != 0 {
		return 0, Bare(errno)
	}
	return int(n), nil
}

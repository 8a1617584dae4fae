package framefd

import (
	"net"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Writev is Write for a frame in two parts, by writev(2).
//
// borrowed: head and rest, for the call.
func (f *FD) Writev(head, rest []byte) error {
	f.writing.Store(true)
	if f.closed.Load() {
		f.writing.Store(false)
		return net.ErrClosed
	}
	f.iov[0].Base, f.iov[1].Base = unsafe.SliceData(head), unsafe.SliceData(rest)
	f.iov[0].SetLen(len(head))
	f.iov[1].SetLen(len(rest))
	_, errno := f.call(unix.SYS_WRITEV, unsafe.Pointer(&f.iov[0]), uintptr(len(f.iov)), 0)
	f.iov = [2]unix.Iovec{}
	f.writing.Store(false)
	return Bare(errno)
}

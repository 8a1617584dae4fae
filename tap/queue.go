package tap

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/vnet"
)

// Queue is one queue of a TAP device, or of another character device that
// behaves like one. A frame is [virtio_net_hdr | Ethernet frame]; a read or a
// write moves exactly one.
//
// One goroutine may read while another one writes. No call blocks or
// allocates.
type Queue struct {
	fd       int
	plain    bool // the device knows no header: frames are presented with an empty one
	detached bool // by SetActive
	closed   atomic.Bool
	reading  atomic.Bool
	writing  atomic.Bool
	tooLong  atomic.Uint64
}

// NewQueue makes a queue of fd, a non-blocking descriptor of a TAP-like device
// with virtio_net_hdr of vnet.HdrLen bytes. The queue owns fd from then on.
func NewQueue(fd int) *Queue { return &Queue{fd: fd} }

// FD returns the descriptor for poll(2): readable means that ReadFrame may
// find a frame. It belongs to the queue.
func (q *Queue) FD() int { return q.fd }

// TooLong returns how many frames were dropped because they did not fit.
func (q *Queue) TooLong() uint64 { return q.tooLong.Load() }

// ReadFrame reads one frame into slot and returns the part of slot that holds
// it. slot should have more than vnet.MaxFrame bytes: a frame that fills it to
// the end cannot be told from one that was cut off.
//
// It returns unix.EAGAIN, bare, when there is no frame; vnet.ErrTooLong when
// there was one that did not fit and is now dropped; vnet.ErrInvalid when there
// was one whose segmentation the header has no word for, dropped too;
// net.ErrClosed after Close; unix.EBADFD when the device has been deleted from under the queue.
//
// borrowed: slot, for the call.
func (q *Queue) ReadFrame(slot []byte) ([]byte, error) {
	if len(slot) < vnet.MinFrame {
		return nil, unix.EINVAL
	}
	buf := slot[:min(len(slot), vnet.MaxFrame+1)]
	data := buf
	if q.plain {
		data = buf[vnet.HdrLen:]
	}
	q.reading.Store(true)
	if q.closed.Load() {
		q.reading.Store(false)
		return nil, net.ErrClosed
	}
	var n uintptr
	var errno unix.Errno
	for {
		n, _, errno = unix.RawSyscall(unix.SYS_READ, uintptr(q.fd), uintptr(unsafe.Pointer(unsafe.SliceData(data))), uintptr(len(data)))
		if errno != unix.EINTR {
			break
		}
	}
	q.reading.Store(false)
	switch {
	case errno == unix.EAGAIN:
		return nil, errAgain
	case errno == unix.EINVAL:
		return nil, vnet.ErrInvalid
	case errno != 0:
		return nil, errno
	case int(n) == len(data):
		q.tooLong.Add(1)
		return nil, vnet.ErrTooLong
	}
	if q.plain {
		clear(buf[:vnet.HdrLen])
		return buf[:vnet.HdrLen+int(n)], nil
	}
	return buf[:n], nil
}

// errAgain is unix.EAGAIN as an error, made once: a conversion per call would
// be one allocation per idle poll.
var errAgain error = unix.EAGAIN

// errInval is unix.EINVAL as an error, for the same reason.
var errInval error = unix.EINVAL

// WriteFrame hands one frame to the device. The frame is copied or refused
// before it returns.
//
// Errors are bare: unix.EAGAIN when the device is full, unix.EINVAL when the
// kernel, or a plain device, refuses the header, unix.EIO when the device is
// down, net.ErrClosed after Close, unix.EBADFD when the device has been deleted
// from under the queue. The frame is lost in all cases but the first.
//
// borrowed: frame, for the call.
func (q *Queue) WriteFrame(frame []byte) error {
	if len(frame) < vnet.MinFrame {
		return errInval
	}
	if q.plain {
		if !vnet.IsPlain(frame) {
			return errInval
		}
		frame = frame[vnet.HdrLen:]
	}
	q.writing.Store(true)
	if q.closed.Load() {
		q.writing.Store(false)
		return net.ErrClosed
	}
	var errno unix.Errno
	for {
		_, _, errno = unix.RawSyscall(unix.SYS_WRITE, uintptr(q.fd), uintptr(unsafe.Pointer(unsafe.SliceData(frame))), uintptr(len(frame)))
		if errno != unix.EINTR {
			break
		}
	}
	q.writing.Store(false)
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
// begin later return net.ErrClosed. A poll(2) on FD by somebody else has to be
// over: its number may be in use for something else afterwards.
func (q *Queue) Close() error {
	if q.closed.Swap(true) {
		return nil
	}
	// Neither call blocks, so this takes microseconds.
	for q.reading.Load() || q.writing.Load() {
		runtime.Gosched()
	}
	if err := unix.Close(q.fd); err != nil {
		return fmt.Errorf("closing queue: %w", os.NewSyscallError("close", err))
	}
	return nil
}

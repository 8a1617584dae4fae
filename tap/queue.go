package tap

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/framefd"
	"github.com/splitnic/splitnic/internal/ticker"
	"github.com/splitnic/splitnic/tap/discard"
	"github.com/splitnic/splitnic/vnet"
)

// Queue is one queue of a TAP device, or of another character device that
// behaves like one. A frame is [virtio_net_hdr | Ethernet frame]; a read or a
// write moves exactly one.
//
// One goroutine may read while another one writes, one frame or several in each
// call. No call blocks or allocates.
type Queue struct {
	fd       *framefd.FD
	plain    bool // the device knows no header: frames are presented with an empty one
	detached bool // by SetActive
	tooLong  atomic.Uint64
	toGroup  atomic.Bool                 // a frame to a group was read since Device.Watch has asked
	reminder atomic.Pointer[ticker.Task] // of Device.Watch, which is to hear of that
	burst    framefd.Burst               // the reader's
	meter    *discard.Meter
}

// NewQueue makes a queue of fd, a non-blocking descriptor of a TAP-like device
// with virtio_net_hdr of vnet.HdrLen bytes. The queue owns fd from then on.
func NewQueue(fd int) *Queue { return newQueue(fd, false) }

func newQueue(fd int, plain bool) *Queue { return &Queue{fd: framefd.New(fd), plain: plain} }

// FD returns the descriptor for poll(2): readable means that ReadFrame may
// find a frame. It belongs to the queue.
func (q *Queue) FD() int { return q.fd.Int() }

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
		return nil, errInval
	}
	n, err := q.fd.Read(q.readable(slot))
	if err == errAgain && !q.meter.InStep() {
		passed := q.meter.Passed()
		if n, err = q.fd.Read(q.readable(slot)); err == errAgain {
			q.meter.Emptied(passed)
		}
	}
	if err == nil || err == errInval {
		q.meter.Took(1)
	}
	return q.result(slot, n, err)
}

// readable is the part of slot that a read goes into.
func (q *Queue) readable(slot []byte) []byte {
	slot = slot[:min(len(slot), vnet.MaxFrame+1)]
	if q.plain {
		return slot[vnet.HdrLen:]
	}
	return slot
}

// result is what ReadFrame returns after a read into that part of slot.
func (q *Queue) result(slot []byte, n int, err error) ([]byte, error) {
	switch {
	case err == errInval:
		return nil, vnet.ErrInvalid
	case err != nil:
		return nil, err
	case n == len(q.readable(slot)):
		q.tooLong.Add(1)
		return nil, vnet.ErrTooLong
	}
	if first := slot[vnet.HdrLen]; first&1 != 0 && first != 0xff && !q.toGroup.Load() {
		q.toGroup.Store(true)
		q.reminder.Load().Wake()
	}
	if q.plain {
		clear(slot[:vnet.HdrLen])
		n += vnet.HdrLen
	}
	return slot[:n], nil
}

// Bare errors, made once: a conversion for each call would allocate.
var (
	errAgain error = unix.EAGAIN
	errInval error = unix.EINVAL
)

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
	return q.fd.Write(frame)
}

// Close closes the descriptor once no read or write is under way. Calls that
// begin later return net.ErrClosed. A poll(2) on FD by somebody else has to be
// over: its number may be in use for something else afterwards.
func (q *Queue) Close() error { return q.fd.Close() }

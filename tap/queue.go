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
	plain    bool // the device has no header: reads add an empty one
	detached bool // see SetActive
	tooLong  atomic.Uint64
	toGroup  atomic.Bool                 // a frame to a group was read since Device.Watch checked last
	reminder atomic.Pointer[ticker.Task] // task of Device.Watch, woken when toGroup is set
	burst    framefd.Burst               // only the reader uses it
	meter    *discard.Meter
}

// NewQueue makes a queue of fd, a non-blocking descriptor of a TAP-like device
// with virtio_net_hdr of vnet.HdrLen bytes. The queue owns fd from then on.
func NewQueue(fd int) *Queue { return newQueue(fd, false) }

func newQueue(fd int, plain bool) *Queue { return &Queue{fd: framefd.New(fd), plain: plain} }

// Count makes the queue count the frames read from it in m. It must be called before the
// first read.
func (q *Queue) Count(m *discard.Meter) { q.meter = m }

// FD returns the descriptor for poll(2): readable means that ReadFrames may
// find a frame. It belongs to the queue.
func (q *Queue) FD() int { return q.fd.Int() }

// TooLong returns how many frames were dropped because they did not fit.
func (q *Queue) TooLong() uint64 { return q.tooLong.Load() }

// ReadFrame reads one frame into slot and returns the part of slot that has the frame. slot
// should have more than vnet.MaxFrame bytes: a frame that fills it to the end cannot be
// distinguished from one that was cut off.
//
// Errors are not wrapped:
//
//   - unix.EAGAIN: there is no frame.
//   - vnet.ErrTooLong: a frame did not fit and was dropped.
//   - vnet.ErrInvalid: a frame was dropped because the header cannot describe its segmentation.
//   - net.ErrClosed: the queue has been closed.
//   - unix.EBADFD: the device has been deleted.
//
// borrowed: slot, for the call.
func (q *Queue) ReadFrame(slot []byte) ([]byte, error) {
	if len(slot) < vnet.MinFrame {
		return nil, unix.EINVAL
	}
	n, err := q.fd.Read(q.readable(slot))
	if err == unix.EAGAIN && !q.meter.InStep() {
		passed := q.meter.Passed()
		if n, err = q.fd.Read(q.readable(slot)); err == unix.EAGAIN {
			q.meter.Emptied(passed)
		}
	}
	if err == nil || err == unix.EINVAL {
		q.meter.Took(1)
	}
	return q.result(slot, n, err)
}

// readable returns the part of slot into which a read puts the frame.
func (q *Queue) readable(slot []byte) []byte {
	slot = slot[:min(len(slot), vnet.MaxFrame+1)]
	if q.plain {
		return slot[vnet.HdrLen:]
	}
	return slot
}

// result returns the result of ReadFrame after a read of n bytes into readable(slot).
func (q *Queue) result(slot []byte, n int, err error) ([]byte, error) {
	switch {
	case err == unix.EINVAL:
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

// WriteFD returns the descriptor for poll(2): writable means that WriteFrames
// may succeed. It belongs to the queue, and is the same as FD.
func (q *Queue) WriteFD() int { return q.fd.Int() }

// WriteParts hands one frame to the device, in two parts: head, of at least vnet.MinFrame bytes, and
// rest, which may be empty. This allows a caller to put a private copy of the headers before data in
// memory that others can write. The frame is copied or refused before WriteParts returns.
//
// Errors are not wrapped. In all cases but the first the frame is lost:
//
//   - unix.EAGAIN: the device is full.
//   - unix.EINVAL: the kernel, or a plain device, has refused the header.
//   - unix.EIO: the device is down.
//   - net.ErrClosed: the queue has been closed.
//   - unix.EBADFD: the device has been deleted.
//
// borrowed: head and rest, for the call.
func (q *Queue) WriteParts(head, rest []byte) error {
	if len(head) < vnet.MinFrame {
		return unix.EINVAL
	}
	if q.plain {
		if !vnet.IsPlain(head) {
			return unix.EINVAL
		}
		head = head[vnet.HdrLen:]
	}
	if len(rest) == 0 {
		return q.fd.Write(head)
	}
	return q.fd.Writev(head, rest)
}

// Close waits for reads and writes in progress and closes the descriptor. Calls that begin
// later return net.ErrClosed. No goroutine may still use FD for poll(2): the number may be
// that of another file afterwards.
func (q *Queue) Close() error { return q.fd.Close() }

package tap

import "github.com/splitnic/splitnic/vnet"

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
		return errInval
	}
	if q.plain {
		if !vnet.IsPlain(head) {
			return errInval
		}
		head = head[vnet.HdrLen:]
	}
	if len(rest) == 0 {
		return q.fd.Write(head)
	}
	return q.fd.Writev(head, rest)
}

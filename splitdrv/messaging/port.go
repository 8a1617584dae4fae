package messaging

import (
	"time"

	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/vnet"
)

// Port is one queue of a netdevice: where frames come from and go to. A frame
// is a virtio_net_hdr of vnet.HdrLen bytes followed by one Ethernet frame.
//
// ReadFrames and WriteFrames may run in two goroutines at once, one each. Neither
// blocks. Package tap and package lan provide ports.
type Port interface {
	// FD is for poll(2): readable when ReadFrames may succeed, writable when
	// WriteFrames may. An error condition of it makes ReadFrames return an error,
	// or is over once ReadFrames has returned: a packet socket reports a card
	// that goes down like that, which is no end.
	FD() int
	// ReadFrames reads into the slots of ops from the first on, and returns how
	// many of ops it has filled: 1 at least. Only the last of these can have
	// unix.EAGAIN, bare, when there is no frame. A frame that is too long is
	// dropped with vnet.ErrTooLong, one that the header cannot describe with
	// vnet.ErrInvalid, one that the port keeps to itself with vnet.ErrFiltered,
	// and frames may follow them.
	ReadFrames(ops []vnet.ReadOp) int
	// WriteFrames writes frames from the first on, and returns how many of ops
	// are done with: all, or those before the first one for which the device is
	// full at the moment, the Err of which is unix.EAGAIN. Other errors are about
	// their own frame only. It keeps nothing of them.
	WriteFrames(ops []vnet.WriteOp) int
}

// PacedPort is a Port that bounds how much passes in some time. While it holds
// frames back ReadFrames, or WriteFrames, has unix.EAGAIN although FD is
// ready. Each method is for the goroutine that reads, or writes.
type PacedPort interface {
	Port
	// ReadHold is about the latest ReadFrames. If that had unix.EAGAIN because
	// frames are held back it is how long from now, as things are, it is of no use
	// to call it again: above 0, even if that is over already. Otherwise it is 0.
	ReadHold() time.Duration
	// WriteHold is the same for WriteFrames.
	WriteHold() time.Duration
}

// WriteFDer is a Port with a descriptor of its own for writing: one that reads
// from several sources and has an epoll(7) descriptor for FD, which is never
// writable.
type WriteFDer interface {
	// WriteFD is for poll(2): writable when WriteFrames may succeed.
	WriteFD() int
}

// ReadablePort is a WriteFDer whose WriteFD may be readable, and never writable, when
// WriteFrames may succeed: an epoll(7) descriptor.
type ReadablePort interface {
	WriteFDer
	// RoomIsReadable reports whether it is.
	RoomIsReadable() bool
}

// SharedPort is a Port of a netdevice's queue that others read as well, and leave this
// one's frames to it. Release is for the goroutine that reads: it may not call
// ReadFrames for a while, or never again, and others read for as long.
type SharedPort interface {
	Port
	Release()
}

// ZeroCopyPort is a Port that need not copy its frames: it leaves them where they lie, in
// memory that all ports of the netdevice have in common, until they are returned. What a
// frame is judged by is copied nevertheless, as who wrote it may write it again.
type ZeroCopyPort interface {
	Port
	// Memory is where frames lie at present, nil for nowhere, and a channel that is closed
	// when that may have changed.
	Memory() (m *vnet.Memory, changed <-chan struct{})
	// Registered hears how many bytes of the memory more, or less, a device can read, and
	// NotRegistered why it cannot read all of it; nil if it can.
	Registered(bytes int64)
	NotRegistered(why error)
	// ReadLent is ReadFrames, but that some frames, in the memory that keys are of, are
	// lent. Lent has an element for each of ops, whose pieces are none so far.
	ReadLent(ops []vnet.ReadOp, lent []vnet.Lent, keys *vnet.Keys) int
	// Fetch copies what is lent of a frame to the place behind the beginning, and takes it
	// back. There may be an error for the frame in op then.
	Fetch(op *vnet.ReadOp, lent *vnet.Lent)
	// Return takes back what was lent, which nobody reads any more. It does not wait.
	Return(loans []vnet.Loan)
	// OnRecall has fn called when everything that ReadLent has lent is to be returned soon:
	// by another goroutine, not within a call of the port's. It may be nil. When OnRecall
	// returns the function before is not called any more.
	OnRecall(fn func())
}

// room is what to wait for before a frame is written to p again.
func room(p Port) epoll.Interest {
	switch w := p.(type) {
	case ReadablePort:
		if w.RoomIsReadable() {
			return epoll.Readable(w.WriteFD())
		}
		return epoll.Writable(w.WriteFD())
	case WriteFDer:
		return epoll.Writable(w.WriteFD())
	}
	return epoll.Writable(p.FD())
}

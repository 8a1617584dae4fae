package core

import (
	"time"

	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/vnet"
)

// Port is one queue of a netdevice, the source and sink of a data channel's frames. A frame
// is a virtio_net_hdr of vnet.HdrLen bytes followed by one Ethernet frame.
//
// One goroutine may call ReadFrames while another one calls WriteFrames. Neither method
// blocks. Packages tap, lan and vhostuser provide ports.
type Port interface {
	// FD returns a descriptor for poll(2), which is readable when ReadFrames may succeed,
	// and writable when WriteFrames may. If it has an error condition, ReadFrames returns an
	// error or clears the condition: a packet socket reports in this way that its card went
	// down, which does not end the port.
	FD() int
	// ReadFrames reads frames into the slots of ops, from the first on, and returns how many
	// of ops it has filled, at least 1. If there is no frame, the Err of the last of these is
	// unix.EAGAIN, not wrapped. Other errors concern one dropped frame, and frames may follow
	// it: vnet.ErrTooLong (longer than the slot), vnet.ErrInvalid (the header cannot describe
	// it), vnet.ErrFiltered (the port dropped it and counts it).
	ReadFrames(ops []vnet.ReadOp) int
	// WriteFrames writes frames, from the first on, and returns how many of ops are done: all
	// of them, or those before the first one for which the device is full at the moment. The
	// Err of that one is unix.EAGAIN. Any other error concerns only its own frame. The port
	// does not keep references to ops or their memory.
	WriteFrames(ops []vnet.WriteOp) int
}

// PacedPort is a Port with a rate limit. While it holds frames back, ReadFrames or
// WriteFrames returns unix.EAGAIN although FD is ready. ReadHold is called by the goroutine
// that reads, WriteHold by the one that writes.
type PacedPort interface {
	Port
	// ReadHold returns 0 unless the last ReadFrames returned unix.EAGAIN because frames are
	// held back. Otherwise it returns for how long it is useless to call ReadFrames again.
	// That is more than 0, even if the time is already over.
	ReadHold() time.Duration
	// WriteHold is the same for WriteFrames.
	WriteHold() time.Duration
}

// WriteFDer is a Port with a separate descriptor for writing. A port that reads from several
// sources has an epoll(7) descriptor as FD, which is never writable.
type WriteFDer interface {
	// WriteFD returns a descriptor for poll(2), which is writable when WriteFrames may
	// succeed.
	WriteFD() int
}

// ReadablePort is a WriteFDer whose WriteFD may be an epoll(7) descriptor. This is readable,
// and never writable, when WriteFrames may succeed.
type ReadablePort interface {
	WriteFDer
	// RoomIsReadable reports whether WriteFD is such a descriptor.
	RoomIsReadable() bool
}

// SharedPort is a Port on a queue of a netdevice that other readers share, each of which
// gets its own frames. The goroutine that reads calls Release before it stops calling
// ReadFrames for a while, or for ever. The other readers read the queue in the meantime.
type SharedPort interface {
	Port
	Release()
}

// ZeroCopyPort is a Port that can lend its frames: it leaves the rest of a frame where it
// is, in memory shared by all ports of the netdevice, until the loan is returned. The part
// of a frame that is checked is always copied, because its writer could change it later.
type ZeroCopyPort interface {
	Port
	// Memory returns the memory in which frames are at present, or nil if there is none, and
	// a channel that is closed when that may have changed.
	Memory() (m *vnet.Memory, changed <-chan struct{})
	// Registered is told by how many bytes the memory that a device can read has grown, or
	// shrunk if negative. NotRegistered is told why a part cannot be read; nil: all of it can.
	Registered(bytes int64)
	NotRegistered(why error)
	// ReadLent reads like ReadFrames, and lends frames that are in the memory of keys. lent
	// has an element without pieces for each of ops.
	ReadLent(ops []vnet.ReadOp, lent []vnet.Lent, keys *vnet.Keys) int
	// Fetch copies the lent rest of a frame behind its beginning and takes the loan back. It
	// may set the Err of op.
	Fetch(op *vnet.ReadOp, lent *vnet.Lent)
	// Return takes back loans that no device reads any more. It does not wait.
	Return(loans []vnet.Loan)
	// OnRecall sets the function that the port calls when it needs all loans back soon. The
	// port calls it from another goroutine, not within a method of the port. fn may be nil.
	// After OnRecall has returned, the previous function is not called any more.
	OnRecall(fn func())
}

// Room returns the event to wait for before frames are written to p again.
func Room(p Port) epoll.Interest {
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

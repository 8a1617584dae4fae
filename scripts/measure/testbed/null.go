package testbed

import (
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/vnet"
)

// Null is a queue that costs nothing. It accepts and counts all frames. Frames can be read from it
// only during a flood.
type Null struct {
	event *epoll.Event
	close sync.Once
	flood atomic.Pointer[[]byte] // the frame that is read without end; nil: no flood
	taken atomic.Uint64
}

// NewNull makes a Null.
func NewNull() (*Null, error) {
	event, err := epoll.NewEvent()
	return &Null{event: event}, err
}

// Flood starts a flood of a frame with its virtio header.
func (n *Null) Flood(frame []byte) {
	n.flood.Store(&frame)
	n.event.Set()
}

// Taken returns the number of frames that it has accepted.
func (n *Null) Taken() uint64 { return n.taken.Load() }

var errAgain error = unix.EAGAIN

// FD implements messaging.Port and lan.Queue.
func (n *Null) FD() int { return n.event.FD() }

// WriteFD implements lan.Queue. It is never waited for.
func (n *Null) WriteFD() int { return n.event.FD() }

// WriteFrames implements messaging.Port and lan.Queue.
func (n *Null) WriteFrames(ops []vnet.WriteOp) int {
	for i := range ops {
		ops[i].Err = nil
	}
	n.taken.Add(uint64(len(ops)))
	return len(ops)
}

// ReadFrames implements messaging.Port and lan.Queue.
func (n *Null) ReadFrames(ops []vnet.ReadOp) int {
	frame := n.flood.Load()
	if frame == nil {
		ops[0].Frame, ops[0].Err = nil, errAgain
		return 1
	}
	for i := range ops {
		ops[i].Frame, ops[i].Err = ops[i].Slot[:copy(ops[i].Slot, *frame)], nil
	}
	return len(ops)
}

// Close closes the queue. It is idempotent.
func (n *Null) Close() (err error) {
	n.close.Do(func() { err = n.event.Close() })
	return err
}

// Frame returns a frame of size bytes, of the EtherType for experiments (IEEE 802), behind an empty
// virtio header.
func Frame(to, from net.HardwareAddr, size int) []byte {
	f := make([]byte, vnet.HdrLen+size)
	copy(f[vnet.HdrLen:], to)
	copy(f[vnet.HdrLen+6:], from)
	copy(f[vnet.HdrLen+12:], []byte{0x88, 0xb5})
	return f
}

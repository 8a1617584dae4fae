package porttest

import (
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/vnet"
)

// Single is a port that moves one frame at a time. Its errors are those of
// messaging.Port.
type Single interface {
	FD() int
	ReadFrame(slot []byte) ([]byte, error)
	WriteFrame(frame []byte) error
}

// Batched makes a messaging.Port of a Single.
type Batched struct{ Single }

// ReadFrames implements messaging.Port.
func (p Batched) ReadFrames(ops []vnet.ReadOp) int {
	for i := range ops {
		ops[i].Frame, ops[i].Err = p.ReadFrame(ops[i].Slot)
		if ops[i].Err != nil && ops[i].Err != vnet.ErrTooLong {
			return i + 1
		}
	}
	return len(ops)
}

// WriteFrames implements messaging.Port.
func (p Batched) WriteFrames(ops []vnet.WriteOp) int {
	var buf []byte
	for i := range ops {
		frame := ops[i].Head
		if len(ops[i].Rest) > 0 {
			buf = append(append(buf[:0], frame...), ops[i].Rest...)
			frame = buf
		}
		if ops[i].Err = p.WriteFrame(frame); ops[i].Err == unix.EAGAIN {
			return i
		}
	}
	return len(ops)
}

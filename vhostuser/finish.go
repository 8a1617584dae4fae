package vhostuser

import (
	"github.com/splitnic/splitnic/vnet"
)

// finisher does in software what frames leave to others who have not offered to do it: the
// driver of a ring by which it receives, or the I/O unit. at and segments are about a
// frame that the driver has transmitted, or is to receive: those up to at have been read, or
// written.
type finisher struct {
	vnet.Finisher
	at, segments int
}

// begin has frames of the driver's, which lie in op, be read as what they make when they
// are finished.
func (f *finisher) begin(op *vnet.ReadOp) {
	f.at, f.segments = 0, 0
	if n, err := f.Begin(op.Frame, nil); err == nil {
		f.segments = n
	} else {
		op.Err = vnet.ErrInvalid
	}
	op.Frame = nil
}

// more reports whether there are frames to be read, or written.
func (f *finisher) more() bool { return f.at < f.segments }

// next reads the next one.
func (f *finisher) next(op *vnet.ReadOp) {
	segment := f.Segment(f.at)
	f.at++
	op.Frame, op.Err = nil, vnet.ErrTooLong
	if len(segment) <= len(op.Slot) {
		op.Frame, op.Err = op.Slot[:copy(op.Slot, segment)], nil
	}
}

package vhostuser

import (
	"github.com/splitnic/splitnic/vnet"
)

// finisher carries out offloads of frames in software, if the driver that receives the frame, or the
// I/O unit, does not support them. at and segments are the progress of a frame that the driver has
// transmitted, or will receive: the segments before at have been read, or written.
type finisher struct {
	vnet.Finisher
	at, segments int
}

// begin begins to segment the driver's frame in op.
func (f *finisher) begin(op *vnet.ReadOp) {
	f.at, f.segments = 0, 0
	frame, err := vnet.Outgoing(op.Frame)
	if err == nil {
		f.segments, err = f.Begin(frame, nil)
	}
	if err != nil {
		op.Err = vnet.ErrInvalid
	}
	op.Frame = nil
}

// more reports whether segments remain to be read, or written.
func (f *finisher) more() bool { return f.at < f.segments }

// next reads the next segment.
func (f *finisher) next(op *vnet.ReadOp) {
	segment := f.Segment(f.at)
	f.at++
	op.Frame, op.Err = nil, vnet.ErrTooLong
	if len(segment) <= len(op.Slot) {
		op.Frame, op.Err = op.Slot[:copy(op.Slot, segment)], nil
	}
}

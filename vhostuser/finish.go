package vhostuser

import (
	"github.com/splitnic/splitnic/vnet"
)

// finisher does in software what frames leave to others who have not offered to do it: the
// driver of a ring by which it receives, or the I/O unit. at and segments are about a
// frame that the driver has transmitted: those up to at have been read.
type finisher struct {
	vnet.Finisher
	at, segments int
}

// deliverFinished is deliver for a frame of which the driver does not take what is left to
// do: it gets as many frames as that makes.
func (v *vring) deliverFinished(op *vnet.WriteOp) (room bool, err error) {
	n, failed := v.finish.Begin(op.Head, op.Rest)
	if failed != nil {
		op.Err = failed
		return true, nil
	}
	r := v.ring.base()
	if uint32(n) > r.size {
		op.Err = errTooLong
		return true, nil
	}
	v.ring.mark()
	for range n {
		if there, err := v.ring.next(); err != nil || !there {
			v.ring.rewind()
			return false, err
		}
	}
	v.ring.rewind()
	clear(v.raw[:]) // nothing is left to do
	for i := range n {
		segment := vnet.WriteOp{Head: v.finish.Segment(i)}
		if room, err = v.place(&segment); err != nil {
			return false, err
		}
		if !room || segment.Err != nil {
			op.Err = errTooLong // buffers are smaller than segments: the rest is lost
			return true, nil
		}
	}
	return true, nil
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

// more reports whether there are frames to be read.
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

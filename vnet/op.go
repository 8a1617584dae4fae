package vnet

// ReadOp is one frame to be read, of several.
type ReadOp struct {
	Slot  []byte // where to; more than MaxFrame bytes. The caller's.
	Frame []byte // set: the part of Slot that holds the frame, if Err is nil
	Err   error  // set: nil, or as the single read of the device returns it
}

// Move puts the frame, or the error, of a later one of several reads in the
// place of op, whose own frame is not wanted. A frame is copied, to the
// beginning of op's slot.
func (op *ReadOp) Move(from *ReadOp) {
	op.Frame, op.Err = nil, from.Err
	if from.Err != nil {
		return
	}
	if len(from.Frame) > len(op.Slot) {
		op.Err = ErrTooLong
		return
	}
	op.Frame = op.Slot[:copy(op.Slot, from.Frame)]
}

// WriteOp is one frame to be written, of several. It may lie in two places.
type WriteOp struct {
	Head []byte // the header and the beginning of the frame, or all of it
	Rest []byte // what follows, or nothing
	Err  error  // set: nil, or as the single write of the device returns it
}

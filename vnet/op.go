package vnet

// ReadOp is the read of one frame in a batch.
type ReadOp struct {
	Slot  []byte // memory of the caller for the frame; more than MaxFrame bytes
	Frame []byte // set: the part of Slot that holds the frame, if Err is nil
	Err   error  // set: nil, or the error that the read of a single frame would return
}

// Move replaces the result of op, whose own frame is not wanted, by the frame or the error of
// from, a later read in the batch. A frame is copied to the beginning of op's slot.
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

// WriteOp is the write of one frame in a batch. The frame may be in two parts.
type WriteOp struct {
	Head []byte // the header and the beginning of the frame, or all of it
	Rest []byte // the rest of the frame, or empty
	Err  error  // set: nil, or the error that the write of a single frame would return
}

// CopyHead copies the beginning of the frame to buf, of more than MinFrame bytes, so that the
// caller can check a frame to which others can still write. head is the copy, and rest is the
// rest of the frame. ok is false if the frame is shorter than MinFrame, or if what follows head
// would be in two parts.
//
// borrowed: buf, of which head is a part.
func (op *WriteOp) CopyHead(buf []byte) (head, rest []byte, ok bool) {
	head, rest = buf[:copy(buf, op.Head)], op.Rest
	switch {
	case len(head) == len(op.Head):
		// Head is short, and may end before the headers that are checked.
		more := copy(buf[len(head):], rest)
		head, rest = buf[:len(head)+more], rest[more:]
	case len(rest) == 0:
		rest = op.Head[len(head):]
	default:
		return nil, nil, false
	}
	return head, rest, len(head) >= MinFrame
}

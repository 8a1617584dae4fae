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

// CopyHead copies the beginning of the frame to buf, of more than MinFrame bytes, for
// who judges a frame that somebody else can still write to: head is the copy, and rest
// what follows. It is not ok if the frame is none, or lies so that its beginning cannot
// be in one place and the rest in another.
//
// borrowed: buf, of which head is a part.
func (op *WriteOp) CopyHead(buf []byte) (head, rest []byte, ok bool) {
	head, rest = buf[:copy(buf, op.Head)], op.Rest
	switch {
	case len(head) == len(op.Head):
		// So short a part may end before what the frame is judged by.
		more := copy(buf[len(head):], rest)
		head, rest = buf[:len(head)+more], rest[more:]
	case len(rest) == 0:
		rest = op.Head[len(head):]
	default:
		return nil, nil, false
	}
	return head, rest, len(head) >= MinFrame
}

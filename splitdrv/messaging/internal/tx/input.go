package tx

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/pools"
	"github.com/splitnic/splitnic/vnet"
)

// input has the frames that a sender has read from its port and not yet added to a batch.
// They are in slots of registered memory. Only the sender's goroutine uses it.
type input struct {
	port   core.Port
	paced  core.PacedPort  // port, if it is one
	shared core.SharedPort // port, if it is one
	path   *capture.Path
	slots  *pools.Slots
	count  *core.TxCount
	loans  *loans // nil if the port lends nothing
	tail   int    // bytes of a slot behind a frame that are not for it

	ops     []vnet.ReadOp // the frames are ops[next:have]
	in      []uint32      // slot of each of ops
	next    int
	have    int
	ahead   int      // how many frames to read in one call: twice as many as last time
	drained bool     // the last read found no more frames
	unsent  [][]byte // frames of an earlier session, sent before those of the port
}

func newInput(slots *pools.Slots, o *Options, count *core.TxCount) input {
	return input{
		slots: slots, count: count, path: o.Path, tail: o.tail(),
		ops: make([]vnet.ReadOp, o.Batch), in: make([]uint32, o.Batch), ahead: 1,
	}
}

// slotHeadroom is the number of bytes left free before a frame in a slot. They are for the
// header of a SendData message, and for that of a pack that begins with this frame.
const slotHeadroom = protocol.SendDataOverhead + protocol.PackHeaderSize + protocol.PackRecordSize

// fewSlots is the most slots that a read waits for where that is more than a quarter of
// all: a sender with few slots waits for half of them.
const fewSlots = 8

// errMalformed is the error of a frame from the netdevice that no peer would accept.
var errMalformed = errors.New("malformed frame")

// empty reports whether no frame is left that was read.
func (in *input) empty() bool { return in.next == in.have }

// most returns how many frames a read asks for, if there are enough slots and credits.
func (in *input) most() int { return min(in.ahead, len(in.ops)) }

// fewFree reports whether too few slots are free for a read. A read waits for as many slots
// as it would use, at most a quarter of all, or of few slots half. Reading therefore
// starts again when several slots are free, and not after each one. The slots that are not
// free are in flight, and are at least as many as signalOneIn leaves unsignaled in a row.
// So one of them is signaled, and a completion will free slots.
func (in *input) fewFree() bool {
	n := in.slots.Len()
	return in.slots.Free() < max(min(in.most(), max(n/4, min(n/2+1, fewSlots))), 1)
}

// first returns the first frame, or the reason for dropping it. input must not be empty.
func (in *input) first() (frame []byte, slot uint32, err error) {
	op := &in.ops[in.next]
	return op.Frame, in.in[in.next], op.Err
}

// read reads up to n frames from the port. At least n slots must be free.
func (in *input) read(n int) {
	if n == 0 {
		return
	}
	if len(in.unsent) > 0 {
		in.readUnsent(min(n, len(in.ops), len(in.unsent)))
		return
	}
	ops := in.ops[:min(n, in.most())]
	for i := range ops {
		slot, _ := in.slots.Take()
		in.in[i] = slot
		ops[i].Slot = in.room(slot)
	}
	if in.loans == nil {
		n = in.port.ReadFrames(ops)
	} else {
		n = in.loans.read(ops, in.path)
	}
	in.ahead = 2 * n
	if in.drained = ops[n-1].Err == unix.EAGAIN; in.drained {
		n--
	}
	in.judge(ops[:n])
	in.path.Sent(ops[:n])
	for i := len(ops) - 1; i >= n; i-- { // backwards: the next read takes them in the same order
		in.slots.Put(in.in[i])
	}
	in.next, in.have = 0, n
}

// room returns the part of a slot that is for a frame.
func (in *input) room(slot uint32) []byte {
	mem := in.slots.Bytes(slot)
	return mem[slotHeadroom : len(mem)-in.tail]
}

// judge marks the frames that the peer would not accept, and pads short ones. A program
// or a virtual machine can write any bytes, with any header, to the netdevice; for some
// of them the peer would end the session.
func (in *input) judge(ops []vnet.ReadOp) {
	for i := range ops {
		op := &ops[i]
		if op.Err != nil {
			continue
		}
		if l := in.lent(i); l != nil {
			if vnet.OutgoingHead(op.Frame, l.Size) {
				continue
			}
			if in.loans.fetch(op, i); op.Err != nil {
				continue
			}
		}
		n := len(op.Frame)
		if op.Frame, op.Err = vnet.Outgoing(op.Frame); op.Err != nil {
			op.Frame = nil
			if op.Err != vnet.ErrTooLong {
				op.Err = errMalformed
			}
		} else if len(op.Frame) != n {
			in.count.TxPadded.Add(1)
		}
	}
}

// lent returns what the port has lent of frame i, or nil if all of it is in its slot.
func (in *input) lent(i int) *vnet.Lent {
	if in.loans == nil || len(in.loans.lent[i].Pieces) == 0 {
		return nil
	}
	return &in.loans.lent[i]
}

// fetch copies the lent parts of all frames into their slots and returns the loans.
func (in *input) fetch() {
	if in.loans == nil {
		return
	}
	for i := in.next; i < in.have; i++ {
		if in.lent(i) != nil {
			in.loans.fetch(&in.ops[i], i)
		}
	}
}

// firstSize returns the size of the first frame in bytes, with its virtio_net_hdr.
func (in *input) firstSize() int {
	if l := in.lent(in.next); l != nil {
		return l.Size
	}
	return len(in.ops[in.next].Frame)
}

// release lets others read a shared port until the next read.
func (in *input) release() {
	if in.shared != nil {
		in.shared.Release()
	}
}

// refuse drops the first frame, which has an error, and counts it by reason. It returns
// the error if the port itself has failed.
func (in *input) refuse(err error) error {
	in.drop()
	switch err {
	case vnet.ErrTooLong:
		in.count.TxTooLong.Add(1)
	case vnet.ErrInvalid:
		in.count.TxInvalid.Add(1)
	case errMalformed:
		in.count.TxMalformed.Add(1)
	case vnet.ErrFiltered: // counted by the port
	default:
		return err
	}
	return nil
}

// drop removes the first frame and frees its slot.
func (in *input) drop() {
	if l := in.lent(in.next); l != nil {
		in.loans.giveUp(l)
	}
	in.slots.Put(in.in[in.next])
	in.next++
}

// readUnsent is the read of frames of an earlier session.
func (in *input) readUnsent(n int) {
	for i := range n {
		slot, _ := in.slots.Take()
		in.in[i] = slot
		in.ops[i].Frame, in.ops[i].Err = nil, vnet.ErrTooLong
		if room := in.room(slot); len(in.unsent[i]) <= len(room) {
			in.ops[i].Frame, in.ops[i].Err = room[:copy(room, in.unsent[i])], nil
		}
	}
	if in.loans != nil {
		in.loans.forget(n)
	}
	in.unsent = in.unsent[n:]
	in.next, in.have = 0, n
}

// left returns copies of the frames that were read and not sent, in order.
func (in *input) left() [][]byte {
	in.fetch()
	var frames [][]byte
	for i := in.next; i < in.have; i++ {
		if in.ops[i].Err == nil {
			frames = append(frames, slices.Clone(in.ops[i].Frame))
		}
	}
	return append(frames, in.unsent...)
}

// close returns all outstanding loans. The sender has ended, and no device reads the lent
// memory any more.
func (in *input) close() {
	l := in.loans
	if l == nil {
		return
	}
	for i := in.next; i < in.have; i++ {
		if x := in.lent(i); x != nil {
			l.giveUp(x)
		}
	}
	for i := range l.sent {
		if l.sent[i].Memory != nil {
			l.used(uint32(i))
		}
	}
	l.settle()
}

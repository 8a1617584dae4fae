package messaging

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/vnet"
)

// input is what a sender has read from its port and not put into its batch yet,
// in slots of registered memory. It is the sender's goroutine's.
type input struct {
	port   Port
	paced  PacedPort  // port, if it is one
	shared SharedPort // port, if it is one
	path   *capture.Path
	slots  *sendSlots
	count  *txCounters
	loans  *loans // nil if the port lends nothing

	ops     []vnet.ReadOp // the frames: ops[next:have]
	in      []uint32      // the slots that they lie in
	next    int
	have    int
	ahead   int      // how many to read in one go: twice as many as last time
	drained bool     // the port had no more when it was asked last
	unsent  [][]byte // of an earlier session: they come before those of the port
}

func newInput(slots *sendSlots, batch int, count *txCounters, path *capture.Path) input {
	return input{
		slots: slots, count: count, path: path, ops: make([]vnet.ReadOp, batch), in: make([]uint32, batch), ahead: 1,
	}
}

// slotHeadroom is what is left free before a frame in a slot: for a SendData
// and for a pack of which the frame is the first one.
const slotHeadroom = protocol.SendDataOverhead + protocol.PackHeaderSize + protocol.PackRecordSize

// fewSlots bounds how many free slots a read waits for beyond a quarter of all.
const fewSlots = 8

// errMalformed stands for a frame that the netdevice had and no peer would take.
var errMalformed = errors.New("malformed frame")

// empty reports whether there is no frame that was read.
func (in *input) empty() bool { return in.next == in.have }

// most is how many frames are read in one go if there are so many, slots and credits.
func (in *input) most() int { return min(in.ahead, len(in.ops)) }

// short reports whether there are too few free slots to read: of those that are wanted, up
// to a quarter of all, or more than half of few. So reading begins again when several are
// free, and not with each one. The others are in flight, as many at least as signalOneIn lets
// wait, and so a completion is asked for.
func (in *input) short() bool {
	n := in.slots.Len()
	return in.slots.Free() < max(min(in.most(), max(n/4, min(n/2+1, fewSlots))), 1)
}

// first is the frame that was read first, or why it is dropped. There must be
// one.
func (in *input) first() (frame []byte, slot uint32, err error) {
	op := &in.ops[in.next]
	return op.Frame, in.in[in.next], op.Err
}

// read takes n frames, or fewer, from the port. There must be so many free slots.
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
		ops[i].Slot = in.slots.Bytes(slot)[slotHeadroom:]
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
	for i := len(ops) - 1; i >= n; i-- { // so that the next one is the same again
		in.slots.Put(in.in[i])
	}
	in.next, in.have = 0, n
}

// judge finds the frames of the netdevice's that the peer would not take. Whoever
// is behind the netdevice can make it have any bytes with any header; the peer
// may end the session for some of them.
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

// lent is what the port has lent of frame i, nil if it is all in its slot.
func (in *input) lent(i int) *vnet.Lent {
	if in.loans == nil || len(in.loans.lent[i].Pieces) == 0 {
		return nil
	}
	return &in.loans.lent[i]
}

// fetch copies what is lent of the frames that were read.
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

// firstSize is how many bytes the frame has that was read first.
func (in *input) firstSize() int {
	if l := in.lent(in.next); l != nil {
		return l.Size
	}
	return len(in.ops[in.next].Frame)
}

// release leaves the port to others until it is read again.
func (in *input) release() {
	if in.shared != nil {
		in.shared.Release()
	}
}

// refuse counts what the port has instead of the first frame, if it is a frame that
// it has dropped, and returns any other error.
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

// drop forgets the first frame.
func (in *input) drop() {
	if l := in.lent(in.next); l != nil {
		in.loans.giveUp(l)
	}
	in.slots.Put(in.in[in.next])
	in.next++
}

// readUnsent is read for frames of an earlier session.
func (in *input) readUnsent(n int) {
	for i := range n {
		slot, _ := in.slots.Take()
		in.in[i] = slot
		in.ops[i].Frame, in.ops[i].Err = nil, vnet.ErrTooLong
		if room := in.slots.Bytes(slot)[slotHeadroom:]; len(in.unsent[i]) <= len(room) {
			in.ops[i].Frame, in.ops[i].Err = room[:copy(room, in.unsent[i])], nil
		}
	}
	if in.loans != nil {
		in.loans.forget(n)
	}
	in.unsent = in.unsent[n:]
	in.next, in.have = 0, n
}

// left copies the frames that were read and not sent, in order.
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

// close returns what the sender, which has ended, still has. No device reads it any more.
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

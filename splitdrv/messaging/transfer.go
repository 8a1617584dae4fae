package messaging

import (
	"sync/atomic"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// batch is what goes out with the next doorbell: transfers of one frame each, or
// of several, a pack. The last transfer is open: frames that are there already
// join it if its element has room, so that nothing waits for company. It is the
// sender's goroutine's.
type batch struct {
	cfg         *Config
	channel     uint8
	slots       *sendSlots
	pieces      int // frames in a transfer at most
	requests    *sendQueue
	count       *txCounters
	signalEvery int
	sequence    atomic.Uint64 // send modes: the sequence number of the next message; others read it

	wrs    []fabric.SendWR // one record for each frame that is not copied, and one for each piece that is lent
	held   []inFlightEntry // the frames that are not copied, in their slots
	frames int             // with those that are copied
	bytes  int
	lent   int // frames that are lent

	last   int    // where the last transfer begins, in wrs
	begins int    // the same, in held
	first  []byte // its first frame, in its slot
	piece  uint32 // the slot of its last record
	joined int    // how many frames it has; 0: it is finished
	size   int    // bytes in the element, but for what a SendData has besides
}

// maxPieces is how many frames a transfer may carry.
func maxPieces(cfg *Config) int {
	if cfg.NoPack {
		return 1
	}
	return max(1, min(cfg.Device.Limits().MaxSGE, packFrames))
}

// packFrames is how many frames a sender packs at most. Each is a piece of its
// own of the work request, whose size in the send queue grows by as much.
const packFrames = 16

// maxRecords is how many records a transfer may have: of a pack, or of a frame that is
// lent, the beginning of which is one.
func maxRecords(cfg *Config) int {
	return max(maxPieces(cfg), 1+lentPieces(cfg))
}

// headroom is what a transfer needs in the element besides its frames.
func (c *Config) headroom() int {
	if c.Mode.Sends() {
		return protocol.SendDataOverhead
	}
	return 0
}

// signalOneIn is one in how many slots asks for a completion when there are so many: at no
// time do more than half of them wait for one that nobody has asked for.
func signalOneIn(cfg *Config, slots int) int { return max(min(cfg.SignalEvery, slots/2), 1) }

// room is how many more frames the batch takes.
func (b *batch) room() int {
	if b.bytes >= b.cfg.BatchBytes {
		return 0
	}
	return b.cfg.Batch - b.frames
}

// together is how many bytes the frames take in an element of at most largest
// bytes that were read and can be one transfer, of which the first one takes n by
// itself.
func (b *batch) together(in *input, n, largest int) int {
	if b.pieces == 1 || in.next+1 >= in.have || in.lent(in.next) != nil {
		return n
	}
	most := min(largest, protocol.MaxImmLength)
	total := b.cfg.headroom() + protocol.PackHeaderSize
	end := min(in.have, in.next+b.pieces)
	at := in.next
	for ; at < end; at++ {
		size := total + protocol.PackRecordSize + len(in.ops[at].Frame)
		if in.ops[at].Err != nil || size > most || in.lent(at) != nil {
			break
		}
		total = size
	}
	if at-in.next < 2 {
		return n
	}
	return total
}

// join adds a frame to the open transfer, if there is one with room in its
// element. A small frame is copied behind the one before it, a larger one is a piece of
// its own, which the device gathers.
func (b *batch) join(frame []byte, slot uint32) bool {
	if b.joined == 0 || b.joined >= b.pieces {
		return false
	}
	size := b.size + protocol.PackRecordSize + len(frame)
	if b.joined == 1 {
		size += protocol.PackHeaderSize + protocol.PackRecordSize
	}
	if size+b.cfg.headroom() > min(b.held[b.begins].pool.ElementSize(), protocol.MaxImmLength) {
		return false
	}
	b.size = size
	b.joined++
	if len(frame) <= b.cfg.PackCopy && b.copyBehind(frame) {
		b.slots.Put(slot)
		b.frames++
		b.bytes += len(frame)
		return true
	}
	protocol.PutPackRecord(b.before(slot, frame, protocol.PackRecordSize), len(frame))
	b.wrs[len(b.wrs)-1].Flags |= fabric.More
	b.append(fabric.SendWR{
		Addr: address(frame) - protocol.PackRecordSize, Len: uint32(len(frame) + protocol.PackRecordSize),
		LKey: b.slots.Key(slot),
	}, inFlightEntry{seq: b.requests.posted, slot: slot}, len(frame))
	return true
}

// copyBehind copies a frame behind the last piece of the open transfer, if there is room
// in the slot of that, which is the sender's until the batch is posted.
func (b *batch) copyBehind(frame []byte) bool {
	wr := &b.wrs[len(b.wrs)-1]
	mem := b.slots.Bytes(b.piece)
	end := int(wr.Addr-address(mem)) + int(wr.Len)
	n := protocol.PackRecordSize + len(frame)
	if n > len(mem)-end {
		return false
	}
	protocol.PutPackRecord(mem[end:], len(frame))
	copy(mem[end+protocol.PackRecordSize:], frame)
	wr.Len += uint32(n)
	return true
}

// add finishes the open transfer and opens one for a frame, to an element of the
// peer's. It reports whether that is one that nothing may overtake. Of a frame that is
// lent, which nothing joins, frame is the beginning.
func (b *batch) add(g *bufpool.Remote, elem uint16, frame []byte, slot uint32, lent *vnet.Lent) (serialised bool) {
	b.finish()
	n, mode := len(frame), b.cfg.Mode
	if lent != nil {
		n = lent.Size
	}
	b.requests.posted++
	seq := b.requests.posted
	wr := fabric.SendWR{
		ID:   uint64(protocol.PackWRID(protocol.WRDataWrite, b.channel, 0, seq)),
		Addr: address(frame),
		Len:  uint32(len(frame)),
		LKey: b.slots.Key(slot),
	}
	f := inFlightEntry{seq: seq, slot: slot, pool: g, elem: elem, lent: lent != nil}
	switch {
	case mode.Sends():
		wr.Op = fabric.OpSend
	case mode == protocol.ModeImm && protocol.CanImm(g.Ref, uint32(elem), n):
		wr.Op, wr.RemoteAddr, wr.RKey = fabric.OpWriteImm, g.Address(elem), g.Key(elem)
	default:
		wr.Op, wr.RemoteAddr, wr.RKey = fabric.OpWrite, g.Address(elem), g.Key(elem)
		f.indicate = true
	}
	g.Pending++
	g.Last = seq
	b.last, b.begins, b.first, b.joined, b.size = len(b.wrs), len(b.held), frame, 1, n
	b.append(wr, f, n)
	if lent != nil {
		b.gather(lent.Pieces)
	}
	return f.indicate && mode == protocol.ModeImm
}

// gather adds the pieces of the frame that was added last, and finishes its transfer.
func (b *batch) gather(pieces []vnet.Piece) {
	for i := range pieces {
		b.wrs[len(b.wrs)-1].Flags |= fabric.More
		b.wrs = append(b.wrs, fabric.SendWR{
			Addr: address(pieces[i].Mem), Len: uint32(len(pieces[i].Mem)), LKey: pieces[i].LKey,
		})
	}
	b.lent++
	b.finish()
}

// append puts a record, a frame of n bytes, into the batch. Its transfer asks for a
// completion if so many slots before this one did not.
func (b *batch) append(wr fabric.SendWR, f inFlightEntry, n int) {
	b.wrs = append(b.wrs, wr)
	b.piece = f.slot
	b.held = append(b.held, f)
	b.frames++
	b.bytes += n
	if b.requests.unsignaled++; b.requests.unsignaled >= b.signalEvery {
		b.signal()
	}
}

// signal makes the last transfer one that asks for a completion.
func (b *batch) signal() {
	wr := &b.wrs[b.last]
	if wr.Flags&fabric.Signaled == 0 {
		b.count.TxSignaled.Add(1)
	}
	b.requests.signal(wr)
}

// before is the n bytes in front of a frame in its slot, where nobody else
// writes.
func (b *batch) before(slot uint32, frame []byte, n int) []byte {
	mem := b.slots.Bytes(slot)
	at := int(address(frame) - address(mem))
	return mem[at-n : at]
}

// finish puts in front of the open transfer what it needs, now that nothing joins
// it any more.
func (b *batch) finish() {
	if b.joined == 0 {
		return
	}
	wr, f := &b.wrs[b.last], &b.held[b.begins]
	f.pool.Frames[f.elem] = uint8(b.joined)
	lead := 0
	if b.joined > 1 {
		lead = protocol.PackHeaderSize + protocol.PackRecordSize
		head := b.before(f.slot, b.first, lead)
		protocol.PutPackHeader(head, b.joined)
		protocol.PutPackRecord(head[protocol.PackHeaderSize:], len(b.first))
		b.count.TxPacks.Add(1)
		b.count.TxPacked.Add(uint64(b.joined))
	}
	size := b.size
	switch wr.Op {
	case fabric.OpSend:
		lead += protocol.SendDataOverhead
		size += protocol.SendDataOverhead
		seq := b.sequence.Load()
		b.sequence.Store(seq + 1)
		protocol.PutSendData(b.before(f.slot, b.first, lead), seq, b.size)
	case fabric.OpWriteImm:
		wr.Imm = uint32(protocol.PackImm(uint8(f.pool.Ref), uint8(f.elem), uint16(b.size)))
	default:
		f.length = uint32(b.size)
	}
	wr.Addr -= uint64(lead)
	wr.Len += uint32(lead)
	if size <= b.cfg.MaxInline && !f.lent { // what is lent may be gone: no processor reads it
		wr.Flags |= fabric.Inline
		f.inline = true
		b.count.TxInline.Add(1)
	}
	b.joined = 0
}

// close finishes the batch before it is posted. Only its last transfer asks for the
// peer's attention; or, when that has to be got by an indication, for a
// completion. What is lent is to be returned soon, for which there has to be one, too.
func (b *batch) close() {
	b.finish()
	b.tally()
	if b.lent > 0 || b.held[b.begins].indicate {
		b.signal()
	}
	if b.held[b.begins].indicate {
		return
	}
	b.wrs[b.last].Flags |= fabric.Solicited
	b.count.TxSolicited.Add(1)
}

// tally counts the batch before it is posted: who has the peer's answer to one of its
// frames finds all of them in the counters.
func (b *batch) tally() {
	// The bytes first, as they are read last: who subtracts the headers of the
	// frames from them gets no less than nothing.
	b.count.TxBytes.Add(uint64(b.bytes))
	b.count.TxFrames.Add(uint64(b.frames))
	b.count.TxPosts.Add(1)
	if b.lent > 0 {
		b.count.TxLent.Add(uint64(b.lent))
	}
}

// posted makes the batch, which was posted, empty: its slots are in flight, but for those
// of inline transfers, whose data the device has.
func (b *batch) posted() {
	inline := false
	for i := range b.held {
		f := &b.held[i]
		first := f.pool != nil
		if first {
			inline = f.inline
		}
		if inline {
			b.slots.Put(f.slot)
			f.slot = noSlot
		}
		if first || !inline {
			b.requests.ring.push(*f)
		}
	}
	b.wrs, b.held, b.frames, b.bytes, b.lent = b.wrs[:0], b.held[:0], 0, 0, 0
}

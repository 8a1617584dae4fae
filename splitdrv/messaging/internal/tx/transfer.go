package tx

import (
	"sync/atomic"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/memory"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/pools"
	"github.com/splitnic/splitnic/vnet"
)

// batch has the transfers of the next doorbell. A transfer has one frame, or several in a
// pack. The last transfer is open: frames that have already been read join it if its
// element has room. No frame waits for others to come. Only the sender's goroutine uses it.
type batch struct {
	o           *Options
	sends       bool // frames are sent as messages
	immediate   bool // writes carry immediate data where it can name the element
	tail        int  // bytes that sealing adds behind a transfer
	channel     uint8
	slots       *pools.Slots
	pieces      int // most frames in a transfer
	inline      int // largest transfer in bytes that is posted inline
	queue       *sendQueue
	count       *core.TxCount
	signalEvery int
	sequence    *atomic.Uint64 // send modes: sequence number of the next message; other goroutines read it

	wrs    []fabric.SendWR // a record for each frame that is not copied, and one for each lent piece
	held   []inFlightEntry // an entry for each frame that is not copied
	frames int             // including copied frames
	bytes  int
	lent   int // lent frames

	// The last transfer.
	last   int    // index of its first record in wrs
	begins int    // index of its first entry in held
	first  []byte // its first frame, in its slot
	piece  uint32 // slot of its last record
	joined int    // number of its frames; 0: it is finished
	size   int    // bytes in the element, without the header of a SendData message
}

// maxPieces returns the most frames that a transfer may have.
func maxPieces(o *Options) int {
	if o.NoPack {
		return 1
	}
	if o.Sealer != nil {
		return packFrames // all in one piece
	}
	return max(1, min(o.MaxSGE, packFrames))
}

// packFrames is the most frames that a sender packs. Each can be a separate piece of the
// work request, and each piece adds to the request's size in the send queue.
const packFrames = 16

// MaxRecords returns the most records that a transfer may have: those of a pack, or those
// of a lent frame, one for its beginning and one for each lent piece.
func MaxRecords(o *Options) int {
	if o.Sealer != nil {
		return 1
	}
	return max(maxPieces(o), 1+LentPieces(o))
}

// headroom returns how many bytes a transfer needs in the element in addition to its frames.
func (b *batch) headroom() int {
	if b.sends {
		return protocol.SendDataOverhead
	}
	return 0
}

// needed returns the size of the smallest element that takes a frame of n bytes. Of an element of
// MaxImmElementSize in mode imm, a transfer leaves the last byte free: immediate data could not
// indicate it all, and a message about a pool that it can name is not allowed.
func (b *batch) needed(n int) int {
	n += b.tail
	if b.immediate && n == protocol.MaxImmElementSize {
		return n + 1
	}
	return n + b.headroom()
}

// signalOneIn returns the number of slots of which one is signaled. It is at most half of
// the slots, so that a completion is always due while more than half are in flight.
func signalOneIn(o *Options, slots int) int { return max(min(o.SignalEvery, slots/2), 1) }

// room returns how many more frames fit into the batch.
func (b *batch) room() int {
	if b.bytes >= b.o.BatchBytes {
		return 0
	}
	return b.o.Batch - b.frames
}

// pieced reports whether a frame of n bytes can be part of a pack as a piece of its own. What is
// sealed is in one piece.
func (b *batch) pieced(n int) bool { return b.tail == 0 || n <= b.o.PackCopy }

// together returns how many bytes the next transfer needs if it packs as many of the
// frames in in as fit into an element of largest bytes. n is what the first frame needs
// alone.
func (b *batch) together(in *input, n, largest int) int {
	if b.pieces == 1 || in.next+1 >= in.have || in.lent(in.next) != nil {
		return n
	}
	most := min(largest, protocol.MaxImmLength)
	total := b.headroom() + b.tail + protocol.PackHeaderSize
	end := min(in.have, in.next+b.pieces)
	at := in.next
	for ; at < end; at++ {
		size := total + protocol.PackRecordSize + len(in.ops[at].Frame)
		if in.ops[at].Err != nil || size > most || in.lent(at) != nil || at > in.next && !b.pieced(len(in.ops[at].Frame)) {
			break
		}
		total = size
	}
	if at-in.next < 2 {
		return n
	}
	return total
}

// join adds a frame to the open transfer, and reports false if there is none, or if the
// frame does not fit. A small frame is copied behind the one before it. A larger one is a
// separate piece, which the device gathers.
func (b *batch) join(frame []byte, slot uint32) bool {
	if b.joined == 0 || b.joined >= b.pieces || !b.pieced(len(frame)) {
		return false
	}
	size := b.size + protocol.PackRecordSize + len(frame)
	if b.joined == 1 {
		size += protocol.PackHeaderSize + protocol.PackRecordSize
	}
	if size+b.headroom()+b.tail > min(b.held[b.begins].pool.ElementSize(), protocol.MaxImmLength) {
		return false
	}
	copied := len(frame) <= b.o.PackCopy && b.copyBehind(frame)
	if b.tail > 0 && !copied {
		return false
	}
	b.size = size
	b.joined++
	if copied {
		b.slots.Put(slot)
		b.frames++
		b.bytes += len(frame)
		return true
	}
	protocol.PutPackRecord(b.before(slot, frame, protocol.PackRecordSize), len(frame))
	b.wrs[len(b.wrs)-1].Flags |= fabric.More
	b.append(fabric.SendWR{
		Addr: memory.Address(frame) - protocol.PackRecordSize, Len: uint32(len(frame) + protocol.PackRecordSize),
		LKey: b.slots.Key(slot),
	}, inFlightEntry{seq: b.queue.posted, slot: slot}, len(frame))
	return true
}

// copyBehind copies a frame behind the last piece of the open transfer, if the slot of
// that piece has room. The sender may write to the slot until the batch is posted.
func (b *batch) copyBehind(frame []byte) bool {
	wr := &b.wrs[len(b.wrs)-1]
	mem := b.slots.Bytes(b.piece)
	end := int(wr.Addr-memory.Address(mem)) + int(wr.Len)
	n := protocol.PackRecordSize + len(frame)
	if n > len(mem)-b.tail-end {
		return false
	}
	protocol.PutPackRecord(mem[end:], len(frame))
	copy(mem[end+protocol.PackRecordSize:], frame)
	wr.Len += uint32(n)
	return true
}

// add finishes the open transfer and opens another one, of a frame to a remote element.
// It reports whether no other transfer may overtake this one. If lent is not nil, frame is
// only the beginning of the frame; no other frames join it.
func (b *batch) add(g *bufpool.Remote, elem uint16, frame []byte, slot uint32, lent *vnet.Lent) (serialised bool) {
	b.finish()
	n := len(frame)
	if lent != nil {
		n = lent.Size
	}
	b.queue.posted++
	seq := b.queue.posted
	wr := fabric.SendWR{
		ID:   uint64(protocol.PackWRID(protocol.WRDataWrite, b.channel, 0, seq)),
		Addr: memory.Address(frame),
		Len:  uint32(len(frame)),
		LKey: b.slots.Key(slot),
	}
	f := inFlightEntry{seq: seq, slot: slot, pool: g, elem: elem, lent: lent != nil}
	switch {
	case b.sends:
		wr.Op = fabric.OpSend
	case b.immediate && protocol.CanImm(g.Ref, uint32(elem), n+b.tail):
		wr.Op, wr.RemoteAddr, wr.RKey = fabric.OpWriteImm, g.Address(elem), g.Key(elem)
	default:
		wr.Op, wr.RemoteAddr, wr.RKey = fabric.OpWrite, g.Address(elem), g.Key(elem)
		f.indicate = true
	}
	g.Sent(seq)
	b.last, b.begins, b.first, b.joined, b.size = len(b.wrs), len(b.held), frame, 1, n
	b.append(wr, f, n)
	if lent != nil {
		b.gather(lent.Pieces)
	}
	return f.indicate && b.immediate
}

// gather adds the lent pieces of the frame that was added last, and finishes the transfer.
func (b *batch) gather(pieces []vnet.Piece) {
	for i := range pieces {
		b.wrs[len(b.wrs)-1].Flags |= fabric.More
		b.wrs = append(b.wrs, fabric.SendWR{
			Addr: memory.Address(pieces[i].Mem), Len: uint32(len(pieces[i].Mem)), LKey: pieces[i].LKey,
		})
	}
	b.lent++
	b.finish()
}

// append adds a record, of a frame of n bytes, to the batch. It makes the transfer
// signaled if the last signalEvery-1 slots were unsignaled.
func (b *batch) append(wr fabric.SendWR, f inFlightEntry, n int) {
	b.wrs = append(b.wrs, wr)
	b.piece = f.slot
	b.held = append(b.held, f)
	b.frames++
	b.bytes += n
	if b.queue.unsignaled++; b.queue.unsignaled >= b.signalEvery {
		b.signal()
	}
}

func (b *batch) signal() {
	wr := &b.wrs[b.last]
	if wr.Flags&fabric.Signaled == 0 {
		b.count.TxSignaled.Add(1)
	}
	b.queue.signal(wr)
}

// before returns the n bytes in front of a frame in its slot, which are free for headers.
func (b *batch) before(slot uint32, frame []byte, n int) []byte {
	mem := b.slots.Bytes(slot)
	at := int(memory.Address(frame) - memory.Address(mem))
	return mem[at-n : at]
}

// finish writes the headers of the open transfer, which no more frames join, and seals it.
func (b *batch) finish() {
	if b.joined == 0 {
		return
	}
	wr, f := &b.wrs[b.last], &b.held[b.begins]
	f.pool.Carries(f.elem, b.joined)
	lead := 0
	if b.joined > 1 {
		lead = protocol.PackHeaderSize + protocol.PackRecordSize
		head := b.before(f.slot, b.first, lead)
		protocol.PutPackHeader(head, b.joined)
		protocol.PutPackRecord(head[protocol.PackHeaderSize:], len(b.first))
		b.count.TxPacks.Add(1)
		b.count.TxPacked.Add(uint64(b.joined))
	}
	if b.o.Sealer != nil {
		b.seal(f, lead)
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
	if size <= b.inline && !f.lent { // a processor must not read lent memory, which can disappear
		wr.Flags |= fabric.Inline
		f.inline = true
		b.count.TxInline.Add(1)
	}
	b.joined = 0
}

// seal seals the open transfer, whose headers in front of the first frame have lead bytes. Its frames
// are behind each other in the slot of the first one.
func (b *batch) seal(f *inFlightEntry, lead int) {
	mem := b.slots.Bytes(f.slot)
	at := int(memory.Address(b.first)-memory.Address(mem)) - lead
	b.o.Sealer.Seal(mem[at:at+b.size], f.pool.Ref, uint32(f.elem))
	b.size += b.tail
	b.wrs[b.last].Len += uint32(b.tail)
	b.count.TxSealed.Add(1)
}

// close finishes the batch before it is posted. Its last transfer is solicited, or, if it
// needs an indication, signaled instead. It is also signaled if the batch has lent frames,
// so that these are returned soon.
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

// tally counts the batch. It is called before posting: once the peer has answered one of
// the frames, the counters include all of them.
func (b *batch) tally() {
	// The bytes are added first and read last, so that the difference between them and
	// the headers of the frames is never negative.
	b.count.TxBytes.Add(uint64(b.bytes))
	b.count.TxFrames.Add(uint64(b.frames))
	b.count.TxPosts.Add(1)
	if b.lent > 0 {
		b.count.TxLent.Add(uint64(b.lent))
	}
}

// posted empties the batch after it was posted. Its slots are now in flight, except those
// of inline transfers: the device has copied their data, and they are free.
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
			b.queue.ring.push(*f)
		}
	}
	b.wrs, b.held, b.frames, b.bytes, b.lent = b.wrs[:0], b.held[:0], 0, 0, 0
}

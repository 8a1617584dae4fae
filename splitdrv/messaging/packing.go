package messaging

import (
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// transfer is the last transfer of a batch as long as it is not sealed. It is
// one frame, or becomes a pack when others join that are there already: nothing
// waits for them.
type transfer struct {
	first  []byte // the first frame, in its slot
	frames int    // 0: it is sealed
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

// together is how many bytes the frames take in an element that were read and
// can be one transfer, of which the first one takes n by itself.
func (s *sender) together(n int) int {
	grants := *s.grants.Load()
	if s.pieces == 1 || s.next+1 >= s.have || len(grants) == 0 {
		return n
	}
	most := min(grants[len(grants)-1].ElementSize(), protocol.MaxImmLength)
	total := s.headroom() + protocol.PackHeaderSize
	end := min(s.have, s.next+s.pieces)
	at := s.next
	for ; at < end; at++ {
		size := total + protocol.PackRecordSize + len(s.reads[at].Frame)
		if s.reads[at].Err != nil || size > most {
			break
		}
		total = size
	}
	if at-s.next < 2 {
		return n
	}
	return total
}

// join adds the frame that was read first to the last transfer, if there is
// room in its element.
func (s *sender) join(frame []byte) bool {
	t := &s.open
	if t.frames == 0 || t.frames >= s.pieces || s.alone {
		return false
	}
	size := t.size + protocol.PackRecordSize + len(frame)
	if t.frames == 1 {
		size += protocol.PackHeaderSize + protocol.PackRecordSize
	}
	f := &s.batch[s.last]
	if size+s.headroom() > min(f.pool.ElementSize(), protocol.MaxImmLength) {
		return false
	}
	t.size = size
	t.frames++
	protocol.PutPackRecord(s.before(s.readSlots[s.next], frame, protocol.PackRecordSize), len(frame))
	s.wrs[len(s.wrs)-1].Flags |= fabric.More
	s.append(fabric.SendWR{
		Addr: address(frame) - protocol.PackRecordSize, Len: uint32(len(frame) + protocol.PackRecordSize), LKey: s.region.LKey(),
	}, flight{seq: s.posted, slot: s.readSlots[s.next]}, len(frame))
	return true
}

// before is the n bytes in front of a frame in its slot, where nobody else
// writes.
func (s *sender) before(slot uint32, frame []byte, n int) []byte {
	b := s.slots.Bytes(slot)
	at := int(address(frame) - address(b))
	return b[at-n : at]
}

// seal puts in front of the last transfer what it needs, now that nothing joins
// it any more.
func (s *sender) seal() {
	t := &s.open
	if t.frames == 0 {
		return
	}
	wr, f := &s.wrs[s.last], &s.batch[s.last]
	f.pool.Frames[f.elem] = uint8(t.frames)
	lead := 0
	if t.frames > 1 {
		lead = protocol.PackHeaderSize + protocol.PackRecordSize
		head := s.before(f.slot, t.first, lead)
		protocol.PutPackHeader(head, t.frames)
		protocol.PutPackRecord(head[protocol.PackHeaderSize:], len(t.first))
		s.count.packs.Add(1)
		s.count.packed.Add(uint64(t.frames))
	}
	size := t.size
	switch wr.Op {
	case fabric.OpSend:
		lead += protocol.SendDataOverhead
		size += protocol.SendDataOverhead
		seq := s.sequence.Load()
		s.sequence.Store(seq + 1)
		protocol.PutSendData(s.before(f.slot, t.first, lead), seq, t.size)
	case fabric.OpWriteImm:
		wr.Imm = uint32(protocol.PackImm(uint8(f.pool.Ref), uint8(f.elem), uint16(t.size)))
	default:
		f.length = uint32(t.size)
	}
	wr.Addr -= uint64(lead)
	wr.Len += uint32(lead)
	if size <= s.c.cfg.MaxInline {
		wr.Flags |= fabric.Inline
		s.count.inline.Add(1)
	}
	t.frames = 0
}

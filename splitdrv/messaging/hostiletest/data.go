package hostiletest

import (
	"encoding/binary"
	"math"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// writes returns attacks with writes with immediate data, and with operations that must not be used.
func writes() []Attack {
	imm := protocol.PackImm
	// says returns an attack with data in element 0 of pool 0, and immediate data with another length.
	says := func(name, code string, length uint16, data []byte) Attack {
		return Attack{Name: name, Modes: onlyImm, Code: code, Channel: 1, do: func(p *Peer) {
			p.imm(0, 0, imm(uint8(p.Pools[0].Ref), 0, length), data)
		}}
	}
	return []Attack{
		{Name: "immediate data about a pool that was not lent", Modes: onlyImm, Code: "pool-unknown", Channel: 1,
			do: func(p *Peer) { p.imm(0, 0, imm(200, 0, 100), frame(100)) }},
		{Name: "immediate data about a pool that was returned", Modes: onlyImm, Code: "pool-unknown", Channel: 1,
			do: func(p *Peer) {
				p.giveBack(p.Pools[0].Ref)
				p.imm(0, 0, imm(uint8(p.Pools[0].Ref), 0, 0), nil)
			}},
		{Name: "immediate data about an element beyond the pool", Modes: onlyImm, Code: "not-lent", Channel: 1,
			do: func(p *Peer) { p.imm(1, 0, imm(uint8(p.Pools[1].Ref), 255, 100), frame(100)) }},
		{Name: "element written twice", Modes: onlyImm, Code: "not-lent", Channel: 1, Delivered: 1, do: func(p *Peer) {
			for range 2 {
				p.imm(0, 3, imm(uint8(p.Pools[0].Ref), 3, 100), frame(100))
			}
		}},
		{Name: "immediate data with a length over the element's", Modes: onlyImm, Code: "length", Channel: 1,
			do: func(p *Peer) {
				n := int(p.Pools[0].ElementSize) + 1
				p.imm(0, 0, imm(uint8(p.Pools[0].Ref), 0, uint16(n)), frame(n))
			}},
		says("immediate data about nothing", "length", 0, nil),
		says("more indicated than written", "indicated-length", 200, frame(100)),
		says("less indicated than written", "indicated-length", 99, frame(100)),
		{Name: "message where only writes belong", Modes: writing, Code: "data-send", Channel: 1, do: func(p *Peer) {
			p.post(p.Data[0], fabric.SendWR{Op: fabric.OpSend}, nil)
		}},
		{Name: "immediate data where none belongs", Modes: onlyInd, Code: "immediate", Channel: 1, do: func(p *Peer) {
			p.imm(0, 0, imm(0, 0, 100), frame(100))
		}},
		{Name: "immediate data where frames are sent", Modes: sending, Code: "immediate", Channel: 1, do: func(p *Peer) {
			p.post(p.Data[0], fabric.SendWR{Op: fabric.OpWriteImm, Imm: uint32(imm(0, 0, 100))}, nil)
		}},
	}
}

// indication returns the indication of a transfer to a pool that the session lends.
func (p *Peer) indication(pool int, elem, length uint32) protocol.Indication {
	return protocol.Indication{Pool: p.Pools[pool].Ref, Element: elem, Length: length}
}

func indications() []Attack {
	says := func(name, code string, channel int, what func(p *Peer) protocol.Indication) Attack {
		return Attack{Name: name, Modes: writing, Code: code, Channel: channel, do: func(p *Peer) { p.indicate(what(p)) }}
	}
	return []Attack{
		says("indication of a channel that is not there", "pool-unknown", 0,
			func(*Peer) protocol.Indication { return protocol.Indication{Pool: 1000, Length: 100} }),
		says("indication of a pool with a reference of 32 bits", "pool-unknown", 0, func(*Peer) protocol.Indication {
			return protocol.Indication{Pool: math.MaxUint32, Length: 100}
		}),
		says("indication of a pool that was not lent", "pool-unknown", 1, func(p *Peer) protocol.Indication {
			return protocol.Indication{Pool: p.Pools[len(p.Pools)-1].Ref + 1, Length: 100}
		}),
		{Name: "indication of a pool that was returned", Modes: writing, Code: "pool-unknown", Channel: 1, do: func(p *Peer) {
			p.giveBack(p.Pools[0].Ref)
			p.indicate(p.indication(0, 0, 100))
		}},
		says("indication of an element beyond the pool", "not-lent", 1,
			func(p *Peer) protocol.Indication { return p.indication(0, p.Pools[0].Elements, 100) }),
		says("indication of element 2^32-1", "not-lent", 1,
			func(p *Peer) protocol.Indication { return p.indication(0, math.MaxUint32, 100) }),
		says("indication with a length over the element's", "length", 1,
			func(p *Peer) protocol.Indication { return p.indication(0, 0, p.Pools[0].ElementSize+1) }),
		says("indication of 2^32-1 bytes", "length", 1,
			func(p *Peer) protocol.Indication { return p.indication(0, 0, math.MaxUint32) }),
		says("indication of no bytes", "length", 1, func(p *Peer) protocol.Indication { return p.indication(0, 0, 0) }),
		{Name: "message about what immediate data can name", Modes: onlyImm, Code: "needless-indication", Channel: 1,
			do: func(p *Peer) {
				p.write(fabric.OpWrite, 1, 0, 0, frame(1000))
				p.completed()
				p.indicate(p.indication(1, 0, 1000))
			}},
		{Name: "element indicated twice", Modes: onlyInd, Code: "not-lent", Channel: 1, Delivered: 1, do: func(p *Peer) {
			p.write(fabric.OpWrite, 0, 3, 0, frame(100))
			p.completed()
			p.indicate(p.indication(0, 3, 100), p.indication(0, 3, 100))
		}},
		{Name: "more indications than elements", Modes: writing, Code: "indications", Channel: 1, do: func(p *Peer) {
			p.indicate(make([]protocol.Indication, protocol.MaxIndications)...)
		}},
	}
}

// sequences returns attacks with the sequence numbers of SendData.
func sequences() []Attack {
	sent := func(p *Peer, next uint64) {
		p.send(protocol.AppendCfgUtilRequest(nil, protocol.CfgUtilRequest{
			Type: protocol.CfgSent, Data: protocol.AppendSent(nil, protocol.Sent{Channel: 1, Next: next}),
		}))
	}
	elements := func(p *Peer) uint64 { return uint64(p.Pools[0].Elements) }
	return []Attack{
		{Name: "message left out", Modes: onlyRC, Code: "sequence", Channel: 1, Delivered: 1, do: func(p *Peer) {
			p.sendData(0, frame(100))
			p.sendData(2, frame(100))
		}},
		{Name: "message sent twice", Modes: onlyRC, Code: "sequence", Channel: 1, Delivered: 1, do: func(p *Peer) {
			p.sendData(0, frame(100))
			p.sendData(0, frame(100))
		}},
		{Name: "first message with number 2^64-1", Modes: onlyRC, Code: "sequence", Channel: 1,
			do: func(p *Peer) { p.sendData(math.MaxUint64, frame(100)) }},
		{Name: "message of the next round", Modes: onlyUC, Code: "not-lent", Channel: 1,
			do: func(p *Peer) { p.sendData(elements(p), frame(100)) }},
		{Name: "message far ahead", Modes: onlyUC, Code: "sequence", Channel: 1,
			do: func(p *Peer) { p.sendData(elements(p)+1, frame(100)) }},
		{Name: "message ahead by 2^63-1", Modes: onlyUC, Code: "sequence", Channel: 1,
			do: func(p *Peer) { p.sendData(math.MaxInt64, frame(100)) }},
		{Name: "more sent than there are elements", Modes: onlyUC, Code: "sequence", Channel: 1,
			do: func(p *Peer) { sent(p, elements(p)+1) }},
		{Name: "2^63-1 messages sent", Modes: onlyUC, Code: "sequence", Channel: 1,
			do: func(p *Peer) { sent(p, math.MaxInt64) }},
	}
}

// packOf returns a pack of frames whose header has this count.
func packOf(count int, frames ...[]byte) []byte {
	b := make([]byte, protocol.PackHeaderSize)
	protocol.PutPackHeader(b, count)
	for _, f := range frames {
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(f))), f...)
	}
	return b
}

// packs returns attacks with several frames in one transfer. The session accepts packs.
func packs() []Attack {
	says := func(name, code string, delivered int, pack []byte) Attack {
		return Attack{Name: name, Modes: everywhere, Code: code, Channel: 1, Delivered: delivered,
			do: func(p *Peer) { p.transfer(0, 0, pack) }}
	}
	good := packOf(2, frame(100), frame(60))
	odd := append([]byte(nil), good...)
	odd[1] = 1
	long := packOf(2, frame(100), frame(60))
	binary.BigEndian.PutUint16(long[protocol.PackHeaderSize+protocol.PackRecordSize+100:], 61)
	return []Attack{
		says("pack of one byte", "short-message", 0, good[:1]),
		says("pack with something in byte 1", "padding", 0, odd),
		says("pack of no frames", "count", 0, packOf(0)),
		says("pack of 65535 frames", "count", 0, packOf(65535, frame(100))),
		says("pack that ends before its second frame", "short-message", 1, packOf(2, frame(100))),
		says("pack whose second frame is longer than the rest", "short-message", 1, long),
		says("pack with bytes behind its last frame", "trailing-bytes", 1, append(append([]byte(nil), good...), 0)),
		says("pack with a frame of 23 bytes", "frame", 1, packOf(3, frame(100), frame(60)[:23], frame(60))),
		says("pack in a pack", "frame", 1, packOf(2, frame(100), good)),
	}
}

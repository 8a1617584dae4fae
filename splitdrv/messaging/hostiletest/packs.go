package hostiletest

import (
	"encoding/binary"

	"github.com/splitnic/splitnic/protocol"
)

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

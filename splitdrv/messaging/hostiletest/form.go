package hostiletest

import (
	"math"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// formOfControl returns attacks with control messages that cannot be decoded.
func formOfControl() []Attack {
	var attacks []Attack
	bad := func(name, code string, msg func(p *Peer) []byte) {
		attacks = append(attacks, Attack{Name: name, Modes: everywhere, Code: code, do: func(p *Peer) { p.send(msg(p)) }})
	}
	only := func(name, code string, msg func() []byte) {
		attacks = append(attacks, Attack{Name: name, Modes: writing, Code: code, do: func(p *Peer) { p.send(msg()) }})
	}
	badPool := func(name, code string, change func(*protocol.Pool)) {
		bad(name, code, func(p *Peer) []byte { return p.lend(change) })
	}
	const first = protocol.HeaderSize // offset of the body

	bad("control message of no bytes", "short-message", func(*Peer) []byte { return nil })
	bad("control message without header", "short-message", func(*Peer) []byte { return header(1)[:11] })
	bad("control message of another version", "version", func(*Peer) []byte { return with(update(1, 1), 2, uint16(2)) })
	bad("control message of version 0", "version", func(*Peer) []byte { return with(update(1, 1), 2, uint16(0)) })
	bad("function 0", "function", func(*Peer) []byte { return header(0) })
	bad("unknown function", "function", func(*Peer) []byte { return header(10) })

	bad("no pools", "count", func(*Peer) []byte { return header(protocol.FuncBufferRecvPool) })
	bad("pool cut short", "short-message", func(p *Peer) []byte { return cut(p.lend(func(*protocol.Pool) {}), 1) })
	badPool("pool without elements", "count", func(l *protocol.Pool) { l.Elements = 0 })
	badPool("pool of too many elements", "count", func(l *protocol.Pool) { l.Elements = protocol.MaxPoolElements + 1 })
	badPool("pool of tiny elements", "size", func(l *protocol.Pool) { l.ElementSize = protocol.MinElementSize - 1 })
	badPool("pool that wraps around the address space", "address-overflow",
		func(l *protocol.Pool) { l.Addr = math.MaxUint64 - 2048 })
	badPool("pool of the control channel", "pool-channel",
		func(l *protocol.Pool) { l.Context = protocol.PoolContext(0, 7) })
	badPool("pool with a reference of 32 bits", "pool-reference",
		func(l *protocol.Pool) { l.Ref = protocol.MaxPoolRef + 1 })
	bad("second of two pools wraps around", "address-overflow", func(p *Peer) []byte {
		l := p.pool(4)
		l.Addr = math.MaxUint64
		return protocol.AppendBufferRecvPool(nil, 0, p.pool(3), l)
	})

	bad("no returns", "count", func(*Peer) []byte { return header(protocol.FuncBufferRecvPoolUpdate) })
	bad("update cut in its head", "short-message", func(*Peer) []byte { return update(3, 1)[:first+7] })
	bad("update cut in its elements", "short-message", func(*Peer) []byte { return cut(update(3, 1, 2, 3, 4), 4) })
	bad("update of no elements", "count", func(*Peer) []byte { return update(3) })
	bad("update of 2^32-1 elements", "count", func(*Peer) []byte {
		return with(update(3, 1), first+4,
			uint32(math.MaxUint32))
	})
	bad("update with padding", "padding", func(*Peer) []byte { return with(update(3, 1), first+10, uint16(1)) })

	get := func() []byte {
		return protocol.AppendBufferRecvPoolGet(nil, protocol.BufferRecvPoolGet{ElementSize: 2048, Elements: 4, Channel: 1})
	}
	only("get cut short", "short-message", func() []byte { return cut(get(), 1) })
	only("get with more behind", "trailing-bytes", func() []byte { return longer(get()) })
	only("get of tiny elements", "size", func() []byte { return with(get(), first, uint32(63)) })
	only("get of no elements", "count", func() []byte { return with(get(), first+4, uint32(0)) })
	only("get of too many elements", "count", func() []byte {
		return with(get(), first+4,
			uint32(protocol.MaxPoolElements+1))
	})
	only("get for the control channel", "pool-channel", func() []byte { return with(get(), first+8, uint32(0)) })
	only("get for channel 2^32-1", "pool-channel", func() []byte { return with(get(), first+8, uint32(math.MaxUint32)) })

	flush := func() []byte { return protocol.AppendBufferPoolFlushRequest(nil, 1, 3) }
	only("flush of nothing", "count", func() []byte { return header(protocol.FuncBufferPoolFlushRequest) })
	only("flush cut short", "short-message", func() []byte { return cut(flush(), 1) })
	only("flush reply with a body", "trailing-bytes",
		func() []byte { return longer(protocol.AppendBufferPoolFlushReply(nil, 1)) })

	indicate := func() []byte { return protocol.AppendBufferRDMAIndicate(nil, 0, protocol.Indication{Length: 100}) }
	only("indication of nothing", "count", func() []byte { return header(protocol.FuncBufferRDMAIndicate) })
	only("indication cut short", "short-message", func() []byte { return cut(indicate(), 1) })

	request := func() []byte {
		return protocol.AppendCfgUtilRequest(nil, protocol.CfgUtilRequest{Type: protocol.CfgMTU, Data: make([]byte, 4)})
	}
	bad("request cut short", "short-message", func(*Peer) []byte { return request()[:first+7] })
	bad("request with data cut short", "short-message", func(*Peer) []byte { return cut(request(), 1) })
	bad("request with more behind", "trailing-bytes", func(*Peer) []byte { return longer(request()) })
	bad("request with huge data", "size", func(*Peer) []byte { return with(request(), first+4, uint32(math.MaxUint32)) })
	reply := func() []byte {
		return protocol.AppendCfgUtilReply(nil, protocol.CfgUtilReply{Type: protocol.CfgMTU, Data: make([]byte, 4)})
	}
	bad("reply cut short", "short-message", func(*Peer) []byte { return reply()[:first+11] })
	bad("reply with data cut short", "short-message", func(*Peer) []byte { return cut(reply(), 1) })
	bad("reply with more behind", "trailing-bytes", func(*Peer) []byte { return longer(reply()) })
	bad("reply with huge data", "size", func(*Peer) []byte { return with(reply(), first+8, uint32(math.MaxUint32)) })
	return attacks
}

// formOfData returns attacks with messages on a data channel that cannot be decoded, and with frames
// that no netdevice would accept.
func formOfData() []Attack {
	var attacks []Attack
	bad := func(name, code string, msg func() []byte) {
		attacks = append(attacks, Attack{Name: name, Modes: sending, Code: code, Channel: 1, do: func(p *Peer) {
			p.post(p.Data[0], fabric.SendWR{Op: fabric.OpSend}, msg())
		}})
	}
	good := func() []byte { return sendData(0, frame(100)) }
	bad("SendData of no bytes", "short-message", func() []byte { return nil })
	bad("SendData without header", "short-message", func() []byte { return good()[:11] })
	bad("SendData without size", "short-message", func() []byte { return good()[:15] })
	bad("SendData cut short", "short-message", func() []byte { return cut(good(), 1) })
	bad("SendData with more behind", "trailing-bytes", func() []byte { return longer(good()) })
	bad("SendData of another version", "version", func() []byte { return with(good(), 2, uint16(2)) })
	bad("another function on a data channel", "function",
		func() []byte { return with(good(), 0, uint16(protocol.FuncBufferRDMAIndicate)) })
	bad("unknown function on a data channel", "function", func() []byte { return with(good(), 0, uint16(10)) })
	bad("SendData without data", "size", func() []byte { return sendData(0, nil) })
	const tooMuch = vnet.MaxFrame + protocol.SealOverhead + 1
	bad("SendData of more than any frame", "size", func() []byte { return with(good(), 12, uint32(tooMuch)) })
	bad("SendData of 2^32-1 bytes", "size", func() []byte { return with(good(), 12, uint32(math.MaxUint32)) })
	bad("SendData over the longest", "long-message", func() []byte { return sendData(0, make([]byte, tooMuch)) })

	badFrame := func(name string, f func() []byte) {
		attacks = append(attacks, Attack{Name: name, Modes: everywhere, Code: "frame", Channel: 1,
			do: func(p *Peer) { p.transfer(0, 0, f()) }})
	}
	badFrame("frame without Ethernet header", func() []byte { return frame(100)[:vnet.MinFrame-1] })
	badFrame("frame of one byte", func() []byte { return frame(100)[:1] })
	badFrame("frame with unknown flags", func() []byte { return framed(vnet.Header{Flags: 4}) })
	badFrame("frame with its checksum behind it", func() []byte {
		return framed(vnet.Header{Flags: vnet.FlagNeedsCsum, CsumStart: 90, CsumOffset: 16})
	})
	badFrame("frame with more headers than bytes", func() []byte { return framed(vnet.Header{HdrLen: 91}) })
	return attacks
}

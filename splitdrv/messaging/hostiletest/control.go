package hostiletest

import (
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// poolsAndUpdates returns attacks with well-formed messages about pools that make no sense.
func poolsAndUpdates() []Attack {
	lent := func(p *Peer) { p.send(p.lend(func(*protocol.Pool) {})) } // pool 3
	return []Attack{
		{Name: "pool for a channel that is not there", Modes: everywhere, Code: "no-channel", do: func(p *Peer) {
			p.send(p.lend(func(l *protocol.Pool) { l.Context = protocol.PoolContext(uint16(len(p.Data)+1), 0) }))
		}},
		{Name: "pool for channel 65535", Modes: everywhere, Code: "no-channel", do: func(p *Peer) {
			p.send(p.lend(func(l *protocol.Pool) { l.Context = protocol.PoolContext(65535, 0) }))
		}},
		{Name: "pool lent twice in a message", Modes: everywhere, Code: "pool-twice", do: func(p *Peer) {
			p.send(protocol.AppendBufferRecvPool(nil, 0, p.pool(3), p.pool(3)))
		}},
		{Name: "pool lent twice", Modes: everywhere, Code: "pool-twice", do: func(p *Peer) { lent(p); lent(p) }},
		{Name: "more pools than agreed", Modes: everywhere, Code: "too-many-pools", do: func(p *Peer) {
			var pools []protocol.Pool
			for i := range p.mode.MaxPools() + 1 {
				pools = append(pools, p.pool(uint32(i)))
			}
			p.send(protocol.AppendBufferRecvPool(nil, 0, pools...))
		}},
		{Name: "more elements than a channel can have", Modes: writing, Code: "too-many-elements", do: func(p *Peer) {
			a, b := p.pool(3), p.pool(4)
			a.Elements, b.Elements = messaging.MaxChannelElements-1, 2
			p.send(protocol.AppendBufferRecvPool(nil, 0, a, b))
		}},
		{Name: "memory key for receives", Modes: sending, Code: "pool-memory", do: func(p *Peer) {
			p.send(p.lend(func(l *protocol.Pool) { l.RKey = p.Region.RKey() }))
		}},
		{Name: "address for receives", Modes: sending, Code: "pool-memory", do: func(p *Peer) {
			p.send(p.lend(func(l *protocol.Pool) { l.Addr = p.At(p.LentAt()) }))
		}},
		{Name: "update of a pool that was not lent", Modes: everywhere, Code: "pool-unknown",
			do: func(p *Peer) { p.send(update(3, 0)) }},
		{Name: "update of a pool of the receiver's", Modes: everywhere, Code: "pool-unknown",
			do: func(p *Peer) { p.send(update(p.Pools[0].Ref, 0)) }},
		{Name: "update of a pool with a reference of 32 bits", Modes: everywhere, Code: "pool-unknown",
			do: func(p *Peer) { p.send(update(1<<31, 0)) }},
		{Name: "update of an element that is not out", Modes: everywhere, Code: "not-out",
			do: func(p *Peer) { lent(p); p.send(update(3, 1)) }},
		{Name: "update of an element beyond the pool", Modes: everywhere, Code: "not-out",
			do: func(p *Peer) { lent(p); p.send(update(3, ownElements)) }},
		{Name: "get for a channel that is not there", Modes: writing, Code: "no-channel", do: func(p *Peer) {
			p.send(protocol.AppendBufferRecvPoolGet(nil,
				protocol.BufferRecvPoolGet{ElementSize: 2048, Elements: 4, Channel: uint32(len(p.Data) + 1)}))
		}},
	}
}

func flushes() []Attack {
	lent := func(p *Peer) { p.send(p.lend(func(*protocol.Pool) {})) }
	giveBack := func(ref uint32) uint32 { return ref | protocol.FlushGiveBack }
	return []Attack{
		{Name: "flush of a pool that was not lent", Modes: writing, Code: "pool-unknown", do: func(p *Peer) { p.flush(3) }},
		{Name: "flush of one pool twice", Modes: writing, Code: "pool-unknown", do: func(p *Peer) { lent(p); p.flush(3, 3) }},
		{Name: "flush of a pool that was flushed", Modes: writing, Code: "pool-unknown", do: func(p *Peer) {
			lent(p)
			p.flush(3)
			p.message(protocol.FuncBufferPoolFlushReply)
			p.flush(3)
		}},
		{Name: "return of a pool that was not lent", Modes: writing, Code: "pool-unknown",
			do: func(p *Peer) { p.flush(giveBack(1000)) }},
		{Name: "return of one pool twice", Modes: writing, Code: "pool-unknown", do: func(p *Peer) {
			ref := giveBack(p.Pools[0].Ref)
			p.flush(ref, ref)
		}},
		{Name: "return of a pool that was returned", Modes: writing, Code: "pool-unknown", do: func(p *Peer) {
			p.giveBack(p.Pools[0].Ref)
			p.flush(giveBack(p.Pools[0].Ref))
		}},
		{Name: "reply to no flush", Modes: writing, Code: "reply",
			do: func(p *Peer) { p.send(protocol.AppendBufferPoolFlushReply(nil, 1)) }},
		{Name: "reply to no flush, transaction 0", Modes: writing, Code: "reply",
			do: func(p *Peer) { p.send(protocol.AppendBufferPoolFlushReply(nil, 0)) }},
	}
}

// requests returns attacks with well-formed messages that are not allowed at that time.
func requests() []Attack {
	unexpected := func(name string, msg func() []byte) Attack {
		return Attack{Name: name, Modes: sending, Code: "unexpected", do: func(p *Peer) { p.send(msg()) }}
	}
	return []Attack{
		{Name: "reply to no request", Modes: everywhere, Code: "reply", do: func(p *Peer) {
			p.send(protocol.AppendCfgUtilReply(nil, protocol.CfgUtilReply{TransactionContext: 77, Type: protocol.CfgMTU}))
		}},
		{Name: "SendData on the control channel", Modes: everywhere, Code: "unexpected",
			do: func(p *Peer) { p.send(sendData(0, frame(100))) }},
		{Name: "immediate data on the control channel", Modes: everywhere, Code: "unexpected", do: func(p *Peer) {
			p.post(p.Control, fabric.SendWR{Op: fabric.OpWriteImm, Imm: 1}, nil)
		}},
		unexpected("get where nothing is to be had", func() []byte {
			return protocol.AppendBufferRecvPoolGet(nil, protocol.BufferRecvPoolGet{ElementSize: 2048, Elements: 4, Channel: 1})
		}),
		unexpected("flush where nothing is lent", func() []byte { return protocol.AppendBufferPoolFlushRequest(nil, 1, 0) }),
		unexpected("flush reply where nothing is lent", func() []byte { return protocol.AppendBufferPoolFlushReply(nil, 1) }),
		unexpected("indication where nothing is written", func() []byte {
			return protocol.AppendBufferRDMAIndicate(nil, 0, protocol.Indication{Length: 100})
		}),
	}
}

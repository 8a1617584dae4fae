package hostiletest

import (
	"slices"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// localAttack is an attack on a session in the same process, which prepare, if not nil, has configured.
type localAttack struct {
	Attack
	prepare func(v *victim, cfg *messaging.Config)
	do      func(p *attacker)
}

// attacker is a Peer that sees the session which it attacks.
type attacker struct {
	*Peer
	victim  *victim
	foreign []protocol.Pool // pools that another session on the same device lends to its peer
}

// poll handles the completions that are there.
func (p *Peer) poll() {
	p.t.Helper()
	_, err := p.Poll()
	p.ok(err)
}

// stats returns the session's statistics.
func (p *attacker) stats() messaging.Stats { return p.victim.conn.Stats() }

// sendEach sends control messages.
func (p *Peer) sendEach(msgs ...[]byte) {
	p.t.Helper()
	for _, m := range msgs {
		p.send(m)
	}
}

// Alive fails the test unless the session answers a keep-alive.
func (p *Peer) Alive() {
	p.t.Helper()
	if s := p.request(protocol.CfgKeepAlive, nil); s != protocol.CfgOK {
		p.t.Errorf("a keep-alive was answered with %v", s)
	}
}

// allAttacks returns all attacks, in the form of local ones.
func allAttacks() []localAttack {
	var all []localAttack
	for _, a := range Attacks() {
		all = append(all, localAttack{Attack: a, do: func(p *attacker) { a.Do(p.Peer) }})
	}
	return slices.Concat(all, controls(), channels(), memory(), windows(), proofs(), paths())
}

// controls returns attacks on the control channel.
func controls() []localAttack {
	lent := func(p *attacker) { p.send(p.lend(func(*protocol.Pool) {})) } // pool 3
	quick := func(_ *victim, cfg *messaging.Config) { cfg.PoolIdle = 40 * time.Millisecond }
	blocked := func(v *victim, _ *messaging.Config) { v.port.hold() }
	busy := func(v *victim, cfg *messaging.Config) { cfg.OnRequest = v.busy }
	return []localAttack{
		{Attack{Name: "element returned twice", Modes: everywhere, Code: "not-out"}, nil, func(p *attacker) {
			lent(p)
			p.victim.sendFrame(p.ctx, frame(100))
			if p.mode.Indicated() {
				p.message(protocol.FuncBufferRDMAIndicate)
			} else {
				p.until(p.session, func() bool { return p.Arrived > 0 }, "a frame")
			}
			p.send(update(3, 0, 0))
		}},
		{Attack{Name: "second flush while one is unanswered", Modes: writing, Code: "too-many-flushes", Delivered: 1},
			blocked, func(p *attacker) {
				// The receiver does not handle the first flush while its port blocks.
				p.transfer(0, 0, frame(100))
				p.victim.until(p.ctx, func() bool { return p.victim.port.delivered.Load() == 1 })
				p.flush(p.Pools[0].Ref | protocol.FlushGiveBack)
				p.flush(p.Pools[1].Ref | protocol.FlushGiveBack)
			}},
		{Attack{Name: "reply to another flush", Modes: writing, Code: "reply"}, quick, func(p *attacker) {
			p.another()
			m, err := protocol.DecodeBufferPoolFlushRequest(p.message(protocol.FuncBufferPoolFlushRequest))
			p.ok(err)
			p.send(protocol.AppendBufferPoolFlushReply(nil, m.TransactionContext+1))
		}},
		{Attack{Name: "second reply to a flush", Modes: writing, Code: "reply"}, quick, func(p *attacker) {
			p.another()
			m, err := protocol.DecodeBufferPoolFlushRequest(p.message(protocol.FuncBufferPoolFlushRequest))
			p.ok(err)
			reply := protocol.AppendBufferPoolFlushReply(nil, m.TransactionContext)
			p.sendEach(reply, reply)
		}},
		{Attack{Name: "reply about something else", Modes: everywhere, Code: "reply"}, nil, func(p *attacker) {
			r := p.asked()
			r.Type++
			p.send(protocol.AppendCfgUtilReply(nil, r))
		}},
		{Attack{Name: "second reply to a request", Modes: everywhere, Code: "reply"}, nil, func(p *attacker) {
			r := protocol.AppendCfgUtilReply(nil, p.asked())
			p.sendEach(r, r)
		}},
		{Attack{Name: "requests without waiting", Modes: everywhere, Code: "too-many-requests"}, busy,
			func(p *attacker) {
				for range messaging.MaxRequests + 1 {
					p.send(protocol.AppendCfgUtilRequest(nil, protocol.CfgUtilRequest{Type: protocol.CfgMTU}))
				}
			}},
	}
}

// asked makes the session send a request, and returns a possible reply.
func (p *attacker) asked() protocol.CfgUtilReply {
	p.t.Helper()
	p.Surly = true
	conn := p.victim.conn
	go func() { _, _ = conn.Request(p.ctx, protocol.CfgMTU, nil) }() // ends with the session
	m, err := protocol.DecodeCfgUtilRequest(p.message(protocol.FuncCfgUtilRequest))
	p.ok(err)
	return protocol.CfgUtilReply{TransactionContext: m.TransactionContext, Type: m.Type}
}

// another requests another pool for the first data channel, and returns it.
func (p *Peer) another() protocol.Pool {
	p.t.Helper()
	p.send(protocol.AppendBufferRecvPoolGet(nil, protocol.BufferRecvPoolGet{ElementSize: 2048, Elements: 4, Channel: 1}))
	m, err := protocol.DecodeBufferRecvPool(p.message(protocol.FuncBufferRecvPool))
	p.ok(err)
	return m.At(0)
}

// twoChannels gives the session a second data channel.
func twoChannels(_ *victim, cfg *messaging.Config) { cfg.Queues = 2 }

// regions is twoChannels for a session that protects its pools only by regions.
func regions(v *victim, cfg *messaging.Config) {
	twoChannels(v, cfg)
	cfg.Protection = messaging.ProtectRegion
}

// ofChannel returns the index of a pool of a data channel.
func (p *Peer) ofChannel(ch uint16) int {
	for i, l := range p.Pools {
		if l.Channel() == ch {
			return i
		}
	}
	p.t.Fatalf("no pool of data channel %d among %+v", ch, p.Pools)
	return 0
}

// channels returns attacks on data channels.
func channels() []localAttack {
	oneReceive := func(v *victim, _ *messaging.Config) { v.oneReceive = true }
	return []localAttack{
		{Attack{Name: "immediate data about another channel's pool", Modes: onlyImm, Code: "pool-unknown", Channel: 1},
			regions, func(p *attacker) {
				// The keys allow a write to this pool.
				other := p.ofChannel(2)
				p.imm(other, 0, protocol.PackImm(uint8(p.Pools[other].Ref), 0, 100), frame(100))
			}},
		{Attack{Name: "two channels in one indication", Modes: writing, Code: "pool-unknown"}, twoChannels,
			func(p *attacker) {
				p.indicate(p.indication(p.ofChannel(1), 0, 100), p.indication(p.ofChannel(2), 0, 100))
			}},
		{Attack{Name: "message without credit", Modes: onlyRC, Code: "not-lent", Channel: 1, Delivered: -1}, oneReceive,
			func(p *attacker) {
				// A peer that receives no updates runs out of elements, but not of receives.
				for i := uint64(0); p.victim.conn.Err() == nil; i++ {
					p.sendData(i, frame(100))
					p.victim.until(p.ctx, func() bool { return p.stats().Channels[0].RxFrames > i || p.victim.conn.Err() != nil })
				}
			}},
	}
}

// memory returns attacks with the session's pools.
func memory() []localAttack {
	attacks := []localAttack{
		{Attack{Name: "write to another channel's pool", Modes: writing}, regions, func(p *attacker) {
			// All pools for a peer are in one protection domain.
			p.write(fabric.OpWrite, p.ofChannel(2), 0, 0, frame(100))
			p.completed()
		}},
		{Attack{Name: "get of giant elements", Modes: writing}, nil, func(p *attacker) {
			p.send(protocol.AppendBufferRecvPoolGet(nil,
				protocol.BufferRecvPoolGet{ElementSize: 1<<32 - 1, Elements: protocol.MaxPoolElements, Channel: 1}))
			p.victim.until(p.ctx, func() bool { return p.stats().PoolsRefused == 1 })
		}},
		{Attack{Name: "gets without end", Modes: writing}, nil, func(p *attacker) {
			const n = 16 // fewer than there are receives
			for range n {
				p.send(protocol.AppendBufferRecvPoolGet(nil, protocol.BufferRecvPoolGet{ElementSize: 64, Elements: 1, Channel: 1}))
			}
			p.victim.until(p.ctx, func() bool { s := p.stats(); return s.PoolsRefused+s.PoolsGranted == n })
			if s := p.stats(); s.PoolsGranted > 2 {
				p.t.Errorf("%d pools were granted", s.PoolsGranted)
			}
		}},
		{Attack{Name: "everything returned, and as much as possible got", Modes: writing, Delivered: 1}, nil,
			func(p *attacker) {
				var refs []uint32
				for _, l := range p.Pools {
					refs = append(refs, l.Ref)
				}
				p.giveBack(refs...)
				p.victim.until(p.ctx, func() bool { return p.stats().PoolsReturned == uint64(len(refs)) })
				p.Pools = nil
				for range len(refs) + 2 {
					p.send(protocol.AppendBufferRecvPoolGet(nil,
						protocol.BufferRecvPoolGet{ElementSize: 64, Elements: protocol.MaxPoolElements, Channel: 1}))
					m, err := protocol.DecodeBufferRecvPool(p.message(protocol.FuncBufferRecvPool))
					p.ok(err)
					p.Pools = append(p.Pools, m.At(0))
				}
				p.transfer(len(p.Pools)-1, int(p.Pools[0].Elements)-1, frame(60))
			}},
	}
	for _, op := range []fabric.Opcode{fabric.OpWrite, fabric.OpWriteImm} {
		refused := func(what string, do func(p *attacker)) {
			a := Attack{Name: writeNames[op] + what, Modes: writing, Refused: accessError}
			attacks = append(attacks, localAttack{a, nil, do})
		}
		refused("to another session's pool", func(p *attacker) { p.writeAt(op, p.foreign[0].Addr, p.foreign[0].RKey) })
		refused("with the key of a pool that was returned", func(p *attacker) {
			p.giveBack(p.Pools[0].Ref)
			p.victim.until(p.ctx, func() bool { return p.stats().PoolsReturned == 1 })
			p.writeAt(op, p.Pools[0].Addr, p.Pools[0].RKey)
		})
	}
	return attacks
}

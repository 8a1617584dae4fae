package hostiletest

import (
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// windowed makes the session protect its pools by windows, on two data channels.
func windowed(v *victim, cfg *messaging.Config) {
	twoChannels(v, cfg)
	cfg.Protection = messaging.ProtectWindow
}

// agreed is windowed with a peer that has to invalidate the windows.
func agreed(v *victim, cfg *messaging.Config) {
	windowed(v, cfg)
	cfg.Invalidation = true
}

// keysSent is agreed with keys of windows that are sent behind their binds.
func keysSent(v *victim, cfg *messaging.Config) {
	agreed(v, cfg)
	keySend(v, cfg)
}

// keySend lets the keys of windows be sent.
func keySend(_ *victim, cfg *messaging.Config) { cfg.KeySend = true }

// key sends a key on the first data channel.
func (p *Peer) key(key uint32) {
	p.t.Helper()
	p.post(p.Data[0], fabric.SendWR{Op: fabric.OpSendImm, Imm: key}, nil)
}

// keyless returns the message that lends a pool whose key follows.
func (p *Peer) keyless() []byte {
	return p.lend(func(l *protocol.Pool) {
		l.RKey, l.Context = 0, protocol.PoolContext(1, protocol.PoolKeyFollows)
	})
}

// oneTouch makes the session lend one-touch pools.
func oneTouch(_ *victim, cfg *messaging.Config) {
	cfg.Protection, cfg.OneTouch = messaging.ProtectOneTouch, true
}

// heldBack is oneTouch with a gate that holds back the session's invalidations.
func heldBack(v *victim, cfg *messaging.Config) {
	oneTouch(v, cfg)
	v.gate = newGate(v.ctx, cfg.Device)
	cfg.Device = v.gate
}

// listed adds to a way to prepare a session that its regions' own keys become known to the attacker.
func listed(prepare func(*victim, *messaging.Config)) func(*victim, *messaging.Config) {
	return func(v *victim, cfg *messaging.Config) {
		prepare(v, cfg)
		v.registry = &registry{Device: cfg.Device}
		cfg.Device = v.registry
	}
}

// pastWindow writes to the first element of a pool with the own key of the region behind it, past
// the window.
func (p *attacker) pastWindow(l protocol.Pool) {
	p.t.Helper()
	r := p.victim.registry.behind(l.Addr)
	if r == nil {
		p.t.Fatalf("no region has the address %#x of pool %d", l.Addr, l.Ref)
	}
	p.post(p.Data[l.Channel()-1], fabric.SendWR{Op: fabric.OpWrite, RemoteAddr: l.Addr, RKey: r.RKey()}, frame(100))
}

// tell sends keys of a pool that the peer is about to lend, and returns the status of the reply.
func (p *Peer) tell(pool, first uint32, keys int) protocol.CfgStatus {
	p.t.Helper()
	return p.request(protocol.CfgPoolKeys, protocol.AppendPoolKeys(nil, pool, first, make([]uint32, keys)))
}

// delivered waits until n frames have been delivered.
func (p *attacker) delivered(n int64) {
	p.t.Helper()
	p.victim.until(p.ctx, func() bool {
		p.poll()
		return p.victim.port.delivered.Load() == n
	})
}

// invalidate invalidates a key of the session with a message on the first data channel. With
// Soft-RoCE, doing this twice crashes the kernel.
func (p *Peer) invalidate(key uint32) {
	p.t.Helper()
	p.post(p.Data[0], fabric.SendWR{Op: fabric.OpSendInv, RKey: key}, nil)
}

// windows returns attacks on pools with memory windows, and with keys.
func windows() []localAttack {
	gone := func(p *attacker) {
		p.victim.until(p.ctx, func() bool { return p.stats().PoolsReturned == 1 })
	}
	first := func(p *attacker) protocol.Pool { return p.Pools[p.ofChannel(1)] }
	write := func(p *attacker, channel int, l protocol.Pool) {
		p.post(p.Data[channel-1], fabric.SendWR{Op: fabric.OpWrite, RemoteAddr: l.Addr, RKey: l.RKey}, frame(100))
	}
	usable := func(p *attacker) { // the pool must be usable at once
		p.send(p.lend(func(l *protocol.Pool) { l.Context = protocol.PoolContext(1, protocol.PoolKeyFollows) }))
		p.Alive()
		if n := p.stats().Channels[0].Remote.Elements; n != ownElements {
			p.t.Errorf("there are %d elements to write to, and %d are lent", n, ownElements)
		}
	}
	return []localAttack{
		{Attack{Name: "write through a window over another channel", Modes: writing, Refused: accessError}, windowed,
			func(p *attacker) {
				write(p, 1, first(p))
				p.completed()
				if len(p.Refused) != 0 {
					p.t.Errorf("a write over the channel of the window was refused with %v", p.Refused)
				}
				write(p, 2, first(p))
			}},
		{Attack{Name: "write through a window that its owner has withdrawn", Modes: writing, Refused: accessError},
			windowed, func(p *attacker) {
				p.giveBack(first(p).Ref)
				gone(p)
				write(p, 1, first(p))
			}},
		{Attack{Name: "write through a window that the attacker has given up", Modes: writing, Refused: accessError},
			agreed, func(p *attacker) {
				p.giveBack(first(p).Ref)
				p.invalidate(first(p).RKey)
				gone(p)
				write(p, 1, first(p))
			}},
		{Attack{Name: "invalidation of a pool that is in use", Modes: writing, Code: "invalidated", Channel: 1}, agreed,
			func(p *attacker) {
				p.invalidate(first(p).RKey)
			}},
		{Attack{Name: "invalidation that was not agreed on", Modes: writing, Code: "invalidated", Channel: 1}, windowed,
			func(p *attacker) {
				p.invalidate(first(p).RKey)
			}},
		{Attack{Name: "write past a window with the key of the region behind it", Modes: writing, Refused: accessError},
			listed(windowed), func(p *attacker) { p.pastWindow(first(p)) }},
		{Attack{Name: "write past a one-touch window with the key of the region behind it", Modes: writing,
			Refused: accessError},
			listed(oneTouch), func(p *attacker) { p.pastWindow(p.Pools[0]) }},
		{Attack{Name: "second write to a one-touch element", Modes: writing, Refused: accessError, Delivered: 1}, oneTouch,
			func(p *attacker) {
				// When the frame is delivered, its element can no longer be written.
				p.transfer(0, 0, frame(100))
				p.delivered(1)
				p.write(fabric.OpWrite, 0, 0, 0, frame(100))
			}},
		{Attack{Name: "second write to a one-touch element before its window is invalid", Modes: writing,
			Refused: accessError, Delivered: 1},
			heldBack, func(p *attacker) {
				first, second := frame(100), frame(100)
				first[99], second[99] = 1, 2
				p.transfer(0, 0, first)
				p.victim.until(p.ctx, func() bool {
					p.poll()
					return p.victim.gate.reached.Load() > 0
				})
				// The key is still valid, and the adapter accepts the write. The session has not read
				// the first frame.
				p.write(fabric.OpWrite, 0, 0, 0, second)
				p.completed()
				if n := p.victim.port.delivered.Load(); n != 0 || len(p.Refused) != 0 {
					p.t.Errorf("%d frames were delivered from an element that could be written, refused: %v", n, p.Refused)
				}
				p.victim.gate.lift()
				p.delivered(1)
				p.victim.receives(p.ctx, second) // the frame that was there when it was checked
				p.write(fabric.OpWrite, 0, 0, 0, first)
			}},
		{Attack{Name: "write to a one-touch element with the key of its neighbour", Modes: writing, Refused: accessError},
			oneTouch, func(p *attacker) {
				p.keys[element{p.Pools[0].Ref, 0}] = p.keys[element{p.Pools[0].Ref, 1}]
				p.write(fabric.OpWrite, 0, 0, 0, frame(100))
			}},
		{Attack{Name: "write to a one-touch element with a later key", Modes: writing, Refused: accessError}, oneTouch,
			func(p *attacker) {
				e := element{p.Pools[0].Ref, 0}
				p.keys[e] = protocol.NextKey(p.keys[e])
				p.write(fabric.OpWrite, 0, 0, 0, frame(100))
			}},
		{Attack{Name: "write across the end of a one-touch element", Modes: writing, Refused: accessError}, oneTouch,
			func(p *attacker) {
				p.write(fabric.OpWrite, 0, 0, 0, frame(int(p.Pools[0].ElementSize)+1))
			}},
		{Attack{Name: "one-touch pool without keys", Modes: writing, Code: "pool-keys"}, oneTouch,
			func(p *attacker) {
				p.send(p.lend(func(l *protocol.Pool) { l.RKey = 0 }))
			}},
		{Attack{Name: "one-touch pool with too few keys", Modes: writing, Code: "pool-keys"}, oneTouch,
			func(p *attacker) {
				p.tell(3, 0, ownElements-1)
				p.send(p.lend(func(l *protocol.Pool) { l.RKey = 0 }))
			}},
		{Attack{Name: "keys of an element in the middle", Modes: writing}, oneTouch, func(p *attacker) {
			if s := p.tell(3, 2, 2); s != protocol.CfgInvalid {
				p.t.Errorf("they were answered with %v", s)
			}
			p.Alive()
		}},
		{Attack{Name: "key that was not agreed on", Modes: writing, Code: "data-send", Channel: 1}, agreed,
			func(p *attacker) { p.key(7) }},
		{Attack{Name: "more keys than there can be pools", Modes: writing, Code: "key-message", Channel: 1}, keysSent,
			func(p *attacker) {
				for key := range uint32(p.victim.lends + 1) {
					p.key(key)
				}
			}},
		{Attack{Name: "write with the key of a pool that has not come", Modes: writing, Refused: accessError}, keysSent,
			func(p *attacker) {
				write(p, 1, p.another()) // with the key in the offer, which is not a valid one
			}},
		{Attack{Name: "pool whose key never comes", Modes: writing}, keysSent, func(p *attacker) {
			p.send(p.keyless())
			p.victim.sendFrame(p.ctx, frame(100))
			p.flush(3) // must not be answered
			p.Alive()
			if s := p.stats().Channels[0]; s.TxFrames != 0 || s.Remote.Elements != 0 || p.Arrived > 0 {
				p.t.Errorf("%d frames were written to %d elements, %d messages came", s.TxFrames, s.Remote.Elements, p.Arrived)
			}
		}},
		{Attack{Name: "pool whose key comes first", Modes: writing}, keysSent, func(p *attacker) {
			p.key(p.Region.RKey())
			p.completed()
			p.send(p.keyless())
			p.victim.sendFrame(p.ctx, frame(100))
			p.victim.until(p.ctx, func() bool {
				p.poll()
				return p.stats().Channels[0].TxFrames == 1
			})
			p.Alive()
		}},
		{Attack{Name: "pools whose keys come in the order of their offer", Modes: writing}, keysSent,
			func(p *attacker) {
				first, second := p.pool(3), p.pool(4)
				for _, l := range []*protocol.Pool{&first, &second} {
					l.RKey, l.Context = 0, protocol.PoolContext(1, protocol.PoolKeyFollows)
				}
				first.ElementSize /= 2
				p.send(protocol.AppendBufferRecvPool(nil, 0, first, second))
				p.key(p.Region.RKey())
				p.key(7) // not a valid key: the frame is not written with it
				p.victim.until(p.ctx, func() bool {
					p.poll()
					return p.stats().Channels[0].Remote.Elements == 2*ownElements
				})
				p.victim.sendFrame(p.ctx, frame(100))
				p.victim.until(p.ctx, func() bool {
					p.poll()
					return p.stats().Channels[0].TxFrames == 1
				})
				p.Alive()
			}},
		{Attack{Name: "pool that says that its key follows, where that was not agreed on", Modes: writing}, agreed,
			usable},
		{Attack{Name: "pool that says that its key follows, where there are no keys", Modes: sending},
			keySend, usable},
		{Attack{Name: "return of a pool that is not invalidated", Modes: writing}, agreed, func(p *attacker) {
			// It costs the attacker a pool.
			p.giveBack(first(p).Ref)
			p.Alive()
			if n := p.stats().PoolsReturned; n != 0 {
				p.t.Errorf("%d pools are back, whose windows are bound", n)
			}
		}},
	}
}

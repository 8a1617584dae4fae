package hostiletest

import (
	"math"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

var (
	accessError = []fabric.Status{fabric.StatusRemAccessErr}
	// tooLong has the statuses of a message that is longer than its receive. With Soft-RoCE it
	// is StatusRemOpErr.
	tooLong = []fabric.Status{fabric.StatusRemInvReqErr, fabric.StatusRemOpErr}
)

// writeNames has the beginnings of the names of attacks by writes.
var writeNames = map[fabric.Opcode]string{fabric.OpWrite: "write ", fabric.OpWriteImm: "write with immediate data "}

// devices returns attacks that an RDMA device refuses by itself. The queue pair fails, and the session
// ends.
func devices() []Attack {
	end := func(l protocol.Pool) uint64 { return l.Addr + l.Bytes() }
	var attacks []Attack
	for _, op := range []fabric.Opcode{fabric.OpWrite, fabric.OpWriteImm} {
		name := writeNames[op]
		refused := func(what string, do func(p *Peer)) {
			attacks = append(attacks, Attack{Name: name + what, Modes: writing, Refused: accessError, do: do})
		}
		refused("behind a pool", func(p *Peer) { p.writeAt(op, end(p.Pools[0]), p.Pools[0].RKey) })
		refused("across a pool's end", func(p *Peer) { p.writeAt(op, end(p.Pools[0])-99, p.Pools[0].RKey) })
		refused("before a pool", func(p *Peer) { p.writeAt(op, p.Pools[0].Addr-1, p.Pools[0].RKey) })
		refused("to one pool with another's key", func(p *Peer) { p.writeAt(op, p.Pools[0].Addr, p.Pools[1].RKey) })
		refused("with a key that is none", func(p *Peer) { p.writeAt(op, p.Pools[0].Addr, ^p.Pools[0].RKey) })
		refused("to address 0", func(p *Peer) { p.writeAt(op, 0, p.Pools[0].RKey) })
		attacks = append(attacks, Attack{Name: name + "where frames are sent", Modes: onlyRC, Refused: accessError,
			do: func(p *Peer) { p.writeAt(op, 4096, 1) }})
	}
	return append(attacks,
		Attack{Name: "control message longer than the receive", Modes: everywhere, Refused: tooLong, do: func(p *Peer) {
			p.send(make([]byte, protocol.MaxControlSize+1))
		}},
		Attack{Name: "message with data where only writes belong", Modes: writing, Refused: tooLong, do: func(p *Peer) {
			p.post(p.Data[0], fabric.SendWR{Op: fabric.OpSend}, frame(100))
		}},
		Attack{Name: "message longer than the element", Modes: onlyRC, Refused: tooLong, do: func(p *Peer) {
			p.sendData(0, make([]byte, p.Pools[0].ElementSize))
		}},
		Attack{Name: "message longer than the element, unreliably", Modes: onlyUC, Dropped: true, do: func(p *Peer) {
			p.sendData(0, make([]byte, p.Pools[0].ElementSize))
			p.completed()
		}},
		Attack{Name: "write with a key that is none, unreliably", Modes: onlyUC, Dropped: true, do: func(p *Peer) {
			p.post(p.Data[0], fabric.SendWR{Op: fabric.OpWrite, RemoteAddr: 4096, RKey: 1}, frame(100))
			p.completed()
		}},
	)
}

// tolerated returns attacks that are harmless: the session goes on, and no invalid frame is delivered.
func tolerated() []Attack {
	transfer := func(name string, frame []byte) Attack {
		return Attack{Name: name, Modes: everywhere, do: func(p *Peer) { p.transfer(0, 0, frame) }}
	}
	asks := func(name string, modes []protocol.Mode, t protocol.CfgType, data []byte, want protocol.CfgStatus) Attack {
		return Attack{Name: name, Modes: modes, do: func(p *Peer) { p.answered(t, data, want) }}
	}
	sent := func(channel uint32, next uint64) []byte {
		return protocol.AppendSent(nil, protocol.Sent{Channel: channel, Next: next})
	}
	inTag := frame(vnet.MinFrame)
	inTag[vnet.MinFrame-2], inTag[vnet.MinFrame-1] = 0x81, 0
	return []Attack{
		{Name: "nothing", Modes: everywhere, do: func(*Peer) {}},
		{Name: "write that is not indicated", Modes: writing,
			do: func(p *Peer) { p.write(fabric.OpWrite, 0, 0, 0, frame(100)); p.completed() }},
		transfer("frame over the MTU", frame(2000)),
		transfer("frame with its checksum in the Ethernet header",
			framed(vnet.Header{Flags: vnet.FlagNeedsCsum, CsumStart: 2, CsumOffset: 2})),
		transfer("frame with the checksum of no protocol",
			framed(vnet.Header{Flags: vnet.FlagNeedsCsum, CsumStart: 14, CsumOffset: 16})),
		transfer("frame that ends in its tag", inTag),
		transfer("super-frame that cannot be segmented", framed(vnet.Header{
			Flags: vnet.FlagNeedsCsum, GSOType: vnet.GSOTCPv4, GSOSize: 10, CsumStart: 34, CsumOffset: 16,
		})),
		{Name: "late message", Modes: onlyUC, Delivered: 1, do: func(p *Peer) {
			p.sendData(3, frame(100))
			p.sendData(0, frame(100))
			p.sendData(math.MaxUint64, frame(100))
			p.completed()
		}},
		asks("request of unknown type", everywhere, 999, nil, protocol.CfgUnsupported),
		asks("keep-alive with data", everywhere, protocol.CfgKeepAlive, []byte{1}, protocol.CfgInvalid),
		asks("keys where nothing is lent, or not so", everywhere, protocol.CfgPoolKeys,
			protocol.AppendPoolKeys(nil, 3, 0, make([]uint32, 2)), protocol.CfgUnsupported),
		{Name: "proof that nobody asked for", Modes: everywhere, do: func(p *Peer) {
			proof := p.proof([32]byte{})
			p.answered(protocol.CfgBind, proof[:], protocol.CfgUnsupported)
		}},
		asks("path that nobody asked for", everywhere, protocol.CfgPath, nil, protocol.CfgUnsupported),
		asks("sent where nothing is lost", reliable, protocol.CfgSent, sent(1, 5), protocol.CfgUnsupported),
		{Name: "sent on a channel that is not there", Modes: onlyUC, do: func(p *Peer) {
			p.answered(protocol.CfgSent, sent(uint32(len(p.Data)+1), 1), protocol.CfgInvalid)
		}},
		asks("sent on the control channel", onlyUC, protocol.CfgSent, sent(0, 1), protocol.CfgInvalid),
		asks("sent cut short", onlyUC, protocol.CfgSent, make([]byte, 11), protocol.CfgInvalid),
		{Name: "less sent than before", Modes: onlyUC, Delivered: 1, do: func(p *Peer) {
			for _, next := range []uint64{4, 1, math.MaxUint64} {
				p.answered(protocol.CfgSent, sent(1, next), protocol.CfgOK)
			}
			p.sendData(4, frame(100))
			p.completed()
		}},
		{Name: "pools lent and taken back again and again", Modes: writing, do: func(p *Peer) {
			for ref := range uint32(4) { // each takes a second
				p.send(p.lend(func(l *protocol.Pool) { l.Ref = 1000 + ref; l.Elements = protocol.MaxPoolElements }))
				p.flush(1000 + ref)
				p.message(protocol.FuncBufferPoolFlushReply)
			}
		}},
	}
}

// answered makes a request and expects a reply with this status.
func (p *Peer) answered(t protocol.CfgType, data []byte, want protocol.CfgStatus) {
	p.t.Helper()
	if got := p.request(t, data); got != want {
		p.t.Errorf("a request about %v was answered with %v, not %v", t, got, want)
	}
}

package hostiletest

import (
	"encoding/binary"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// The steps of attacks.

// element returns the address of an element of a pool that the session lends.
func (p *Peer) element(pool, elem int) uint64 {
	return p.Pools[pool].Addr + uint64(elem)*uint64(p.Pools[pool].ElementSize)
}

// write writes to an element, with or without immediate data, on the first data channel.
func (p *Peer) write(op fabric.Opcode, pool, elem int, imm protocol.ImmData, data []byte) {
	p.t.Helper()
	key := p.Pools[pool].RKey
	if k, ok := p.keys[element{p.Pools[pool].Ref, uint32(elem)}]; ok {
		key = k
	}
	p.post(p.Data[0], fabric.SendWR{Op: op, RemoteAddr: p.element(pool, elem), RKey: key, Imm: uint32(imm)}, data)
}

// writeAt writes to an address of the session's memory.
func (p *Peer) writeAt(op fabric.Opcode, addr uint64, key uint32) {
	p.t.Helper()
	p.post(p.Data[0], fabric.SendWR{Op: op, RemoteAddr: addr, RKey: key, Imm: uint32(protocol.PackImm(0, 0, 100))},
		frame(100))
}

// imm writes to an element with immediate data.
func (p *Peer) imm(pool, elem int, imm protocol.ImmData, data []byte) {
	p.t.Helper()
	p.write(fabric.OpWriteImm, pool, elem, imm, data)
}

// indicate indicates on the control channel that elements were written.
func (p *Peer) indicate(of ...protocol.Indication) {
	p.t.Helper()
	p.send(protocol.AppendBufferRDMAIndicate(nil, 0, of...))
}

func (p *Peer) sendData(seq uint64, frame []byte) {
	p.t.Helper()
	p.post(p.Data[0], fabric.SendWR{Op: fabric.OpSend}, sendData(seq, frame))
}

func sendData(seq uint64, frame []byte) []byte {
	msg := make([]byte, protocol.SendDataOverhead+len(frame))
	protocol.PutSendData(msg, seq, len(frame))
	copy(msg[protocol.SendDataOverhead:], frame)
	return msg
}

// transfer transfers a frame to an element in the way of the mode, and waits until all its sends have
// completed.
func (p *Peer) transfer(pool, elem int, frame []byte) {
	p.t.Helper()
	l := p.Pools[pool]
	switch {
	case p.mode.Immediate():
		p.imm(pool, elem, protocol.PackImm(uint8(l.Ref), uint8(elem), uint16(len(frame))), frame)
	case p.mode.Indicated():
		p.write(fabric.OpWrite, pool, elem, 0, frame)
		p.completed()
		p.indicate(protocol.Indication{Pool: l.Ref, Element: uint32(elem), Length: uint32(len(frame))})
	default:
		p.sendData(p.seq, frame)
		p.seq++
	}
	p.completed()
}

// pool returns a pool that the peer can lend.
func (p *Peer) pool(ref uint32) protocol.Pool {
	l := protocol.Pool{Ref: ref, Elements: ownElements, ElementSize: ownElement, Context: protocol.PoolContext(1, 0)}
	if !p.mode.Sends() {
		l.RKey, l.Addr = p.Region.RKey(), p.At(p.LentAt())
	}
	return l
}

// lend returns the message that lends pool 3, after change.
func (p *Peer) lend(change func(*protocol.Pool)) []byte {
	l := p.pool(3)
	change(&l)
	return protocol.AppendBufferRecvPool(nil, 0, l)
}

// giveBack gives pools back to the session and waits for the reply.
func (p *Peer) giveBack(refs ...uint32) {
	p.t.Helper()
	for i := range refs {
		refs[i] |= protocol.FlushGiveBack
	}
	p.flush(refs...)
	p.message(protocol.FuncBufferPoolFlushReply)
}

// flush sends a request to flush pools.
func (p *Peer) flush(refs ...uint32) {
	p.t.Helper()
	p.send(protocol.AppendBufferPoolFlushRequest(nil, 7, refs...))
}

// proof returns the proof that a host with this secret sends first.
func (p *Peer) proof(secret [32]byte) protocol.Proof {
	ours, _ := messaging.NewBinding(secret, true).Proofs(p.Addresses(), p.remote)
	return ours
}

// prove sends data as the proof.
func (p *Peer) prove(data []byte) {
	p.t.Helper()
	p.send(protocol.AppendCfgUtilRequest(nil, protocol.CfgUtilRequest{TransactionContext: 5, Type: protocol.CfgBind,
		Data: data}))
}

// Prove sends the proof that the session expects from a host with this secret.
func (p *Peer) Prove(secret [32]byte) {
	p.t.Helper()
	proof := p.proof(secret)
	p.prove(proof[:])
}

// Ask sends a request without data, and does not wait for the reply.
func (p *Peer) Ask(t protocol.CfgType) {
	p.t.Helper()
	p.send(protocol.AppendCfgUtilRequest(nil, protocol.CfgUtilRequest{TransactionContext: 5, Type: t}))
}

func update(pool uint32, elements ...uint16) []byte {
	return protocol.AppendBufferRecvPoolUpdate(nil, 0, protocol.PoolReturn{Pool: pool, Elements: elements})
}

// header returns a message without a body.
func header(f protocol.Function) []byte {
	msg := make([]byte, protocol.HeaderSize)
	binary.BigEndian.PutUint16(msg, uint16(f))
	binary.BigEndian.PutUint16(msg[2:], protocol.Version)
	return msg
}

// with returns the message with the 16 or 32 bits at an offset replaced.
func with[V uint16 | uint32](msg []byte, at int, v V) []byte {
	switch v := any(v).(type) {
	case uint16:
		binary.BigEndian.PutUint16(msg[at:], v)
	case uint32:
		binary.BigEndian.PutUint32(msg[at:], v)
	}
	return msg
}

// cut returns a message without its last n bytes.
func cut(msg []byte, n int) []byte { return msg[:len(msg)-n] }

func longer(msg []byte) []byte { return append(msg, 0) }

func frame(n int) []byte {
	f := make([]byte, n)
	copy(f[vnet.HdrLen:], []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5})
	return f
}

func framed(h vnet.Header) []byte {
	f := frame(100)
	h.Encode(f)
	return f
}

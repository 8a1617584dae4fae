package hostiletest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/conform"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
)

// patience is the time limit of every wait.
const patience = testenv.Patience

// The layout of the peer's memory: receives of the control channel, receives of the data channels,
// the pool that it lends, and the data that it sends.
const (
	controlReceives = 64
	dataReceives    = 4 // on each data channel
	dataReceiveSize = ownElement
	ownElements     = dataReceives
	ownElement      = 2048
	ownSize         = ownElements * ownElement
	scratchSize     = 512 << 10
)

// The type of a work request, in bits 63–32 of its ID.
const (
	forControl = iota + 1
	forData
	forSend
)

// Peer is a peer made of bare queue pairs, which does what an attack requires and not what the
// protocol requires. It has a method for each step of attacks, and fields for what it knows of the
// session, for its own objects on the device, and for what it has sent and received: attacks combine
// all of these. Only one goroutine may use it.
type Peer struct {
	// Pools has the pools that the session under attack lends, after Started.
	Pools []protocol.Pool

	t          testing.TB
	ctx        context.Context
	session    context.Context // done when the session has ended, if Watch was called
	mode       protocol.Mode
	timing     fabric.Timing
	oneReceive bool
	surly      bool             // the peer does not answer requests
	remote     []fabric.Address // addresses of the session's queue pairs, once connected

	mem     []byte
	region  fabric.Region
	cq      fabric.CQ
	control fabric.QP
	data    []fabric.QP
	scratch int // offset of the next message in the memory for sends

	keys    map[element]uint32       // first keys of the elements of one-touch pools
	inbox   [][]byte                 // received control messages that were not handled
	arrived int                      // number of transfers received
	refused map[uint32]fabric.Status // status of the first failed send, by number of the queue pair
	posted  int                      // number of sends posted
	sent    int                      // number of sends completed, successfully or not
	seq     uint64                   // number of the next SendData
}

// element is an element of a pool of the session.
type element struct{ pool, number uint32 }

// PeerConfig is the configuration of a Peer.
type PeerConfig struct {
	Device     fabric.Device
	Mode       protocol.Mode
	Channels   int // number of data channels
	Timing     fabric.Timing
	OneReceive bool // the peer posts only one receive on the control channel
}

// NewPeer returns a peer that is closed at the end of the test.
func NewPeer(t testing.TB, cfg PeerConfig) *Peer {
	t.Helper()
	p := &Peer{keys: make(map[element]uint32), mode: cfg.Mode, timing: cfg.Timing, oneReceive: cfg.OneReceive,
		refused: make(map[uint32]fabric.Status)}
	p.renew(t)
	receives := controlReceives*protocol.MaxControlSize + cfg.Channels*dataReceives*dataReceiveSize
	p.mem = conform.Alloc(t, receives+ownSize+scratchSize)
	dom, err := cfg.Device.NewDomain()
	p.ok(err)
	t.Cleanup(func() {
		for _, q := range append([]fabric.QP{p.control}, p.data...) {
			if q != nil {
				_ = q.Fail() // so that no timer fires for a destroyed queue pair
			}
		}
		if err := dom.Close(); err != nil {
			t.Errorf("close the attacker's domain: %v", err)
		}
	})
	p.region, err = dom.Register(p.mem, fabric.LocalWrite|fabric.RemoteWrite)
	p.ok(err)
	p.cq, err = dom.NewCQ(2048, 0)
	p.ok(err)
	newQP := func(tr fabric.Transport) fabric.QP {
		q, err := dom.NewQP(fabric.QPConfig{Transport: tr, SendCQ: p.cq, RecvCQ: p.cq, MaxSend: 512, MaxRecv: 128})
		p.ok(err)
		return q
	}
	p.control = newQP(fabric.RC)
	transport := fabric.RC
	if cfg.Mode == protocol.ModeSendUC {
		transport = fabric.UC
	}
	for ch := range cfg.Channels {
		p.data = append(p.data, newQP(transport))
		for i := range dataReceives {
			p.receiveData(ch*dataReceives + i)
		}
	}
	n := controlReceives
	if p.oneReceive {
		n = 1
	}
	for i := range n {
		p.receiveControl(i)
	}
	return p
}

// Addresses returns the addresses of the queue pairs, that of the control channel first.
func (p *Peer) Addresses() []fabric.Address {
	a := []fabric.Address{p.control.Address()}
	for _, q := range p.data {
		a = append(a, q.Address())
	}
	return a
}

// Connect connects the queue pairs to those of the session under attack.
func (p *Peer) Connect(remote []fabric.Address) {
	p.t.Helper()
	if len(remote) != 1+len(p.data) {
		p.t.Fatalf("the attacker has %d channels, the session %d", 1+len(p.data), len(remote))
	}
	p.remote = remote
	p.ok(p.control.Connect(remote[0], p.timing))
	for i, q := range p.data {
		p.ok(q.Connect(remote[1+i], p.timing))
	}
}

// Started waits for a message with pools that the session lends, and adds them to Pools.
func (p *Peer) Started() {
	p.t.Helper()
	m, err := protocol.DecodeBufferRecvPool(p.message(protocol.FuncBufferRecvPool))
	p.ok(err)
	for i := range m.Len() {
		p.Pools = append(p.Pools, m.At(i))
	}
}

func (p *Peer) ok(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatalf("the attacker failed: %v", err)
	}
}

func (p *Peer) at(offset int) uint64 { return p.region.Addr() + uint64(offset) }

func (p *Peer) receiveControl(i int) {
	p.receive(p.control, fabric.RecvWR{
		ID: forControl<<32 | uint64(i), Addr: p.at(i * protocol.MaxControlSize),
		Len: protocol.MaxControlSize, LKey: p.region.LKey(),
	})
}

func (p *Peer) receiveData(i int) {
	p.receive(p.data[i/dataReceives], fabric.RecvWR{
		ID:   forData<<32 | uint64(i),
		Addr: p.at(controlReceives*protocol.MaxControlSize + i*dataReceiveSize), Len: dataReceiveSize, LKey: p.region.LKey(),
	})
}

func (p *Peer) receive(q fabric.QP, wr fabric.RecvWR) {
	p.t.Helper()
	_, err := q.PostRecv([]fabric.RecvWR{wr})
	p.ok(err)
}

// own returns the offset in mem of the memory that the peer lends.
func (p *Peer) own() int {
	return controlReceives*protocol.MaxControlSize + len(p.data)*dataReceives*dataReceiveSize
}

// post posts a work request with data, which it copies.
func (p *Peer) post(q fabric.QP, wr fabric.SendWR, data []byte) {
	p.t.Helper()
	if p.scratch+len(data) > scratchSize {
		p.scratch = 0 // the messages there were sent long ago
	}
	at := p.own() + ownSize + p.scratch
	p.scratch += copy(p.mem[at:], data)
	p.posted++
	wr.ID, wr.Addr, wr.Len, wr.LKey = forSend<<32, p.at(at), uint32(len(data)), p.region.LKey()
	wr.Flags |= fabric.Signaled | fabric.Solicited
	_, err := q.PostSend([]fabric.SendWR{wr})
	p.ok(err)
}

// renew makes the peer use another test, or subtest, and restarts the time limit of its waits.
func (p *Peer) renew(t testing.TB) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errors.New("the attack took too long"))
	t.Cleanup(cancel)
	p.t, p.ctx, p.session = t, ctx, ctx
}

// Watch makes the peer stop waiting for a session that has ended: done is closed then, and err returns
// the reason.
func (p *Peer) Watch(done <-chan struct{}, err func() error) {
	ctx, cancel := context.WithCancelCause(p.ctx)
	p.session = ctx
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-done:
			cancel(fmt.Errorf("the session has ended: %w", err()))
		case <-ctx.Done():
		}
	}()
	p.t.Cleanup(func() {
		cancel(nil)
		<-ended
	})
}

// until handles completions until cond holds or ctx is done.
func (p *Peer) until(ctx context.Context, cond func() bool, what string) {
	p.t.Helper()
	armed := false
	for !cond() {
		switch {
		case p.poll() > 0:
			armed = false
		case !armed:
			p.ok(p.cq.Arm(false))
			armed = true
		default:
			if err := p.cq.Wait(ctx); err != nil {
				p.t.Fatalf("the attacker waits for %s: %v: %v", what, err, context.Cause(ctx))
			}
			armed = false
		}
	}
}

// poll handles up to 16 completions and returns their number.
func (p *Peer) poll() int {
	p.t.Helper()
	var cs [16]fabric.Completion
	n, err := p.cq.Poll(cs[:])
	p.ok(err)
	for i := range cs[:n] {
		p.handle(&cs[i])
	}
	return n
}

// handle handles one completion.
func (p *Peer) handle(c *fabric.Completion) {
	i := int(uint32(c.ID))
	kind := c.ID >> 32
	if kind == forSend {
		p.sent++
		if _, known := p.refused[c.QPN]; c.Status != fabric.StatusSuccess && !known {
			p.refused[c.QPN] = c.Status
		}
		return
	}
	if c.Status != fabric.StatusSuccess {
		return // the queue pair has failed, which its sends report
	}
	if kind == forData {
		p.arrived++
		p.receiveData(i)
		return
	}
	msg := append([]byte(nil), p.mem[i*protocol.MaxControlSize:][:c.Len]...)
	if p.oneReceive {
		p.inbox = append(p.inbox, msg)
		return
	}
	p.receiveControl(i)
	if r, err := protocol.DecodeCfgUtilRequest(msg); err == nil && !p.surly {
		// Answer, so that the session does not end because the peer is silent.
		reply := protocol.CfgUtilReply{TransactionContext: r.TransactionContext, Type: r.Type,
			Status: protocol.CfgUnsupported}
		if r.Type == protocol.CfgPoolKeys {
			k, err := protocol.DecodePoolKeys(r.Data)
			p.ok(err)
			for i := range k.Len() {
				p.keys[element{k.Pool, k.First + uint32(i)}] = k.At(i)
			}
			reply.Status = protocol.CfgOK
		}
		p.send(protocol.AppendCfgUtilReply(nil, reply))
		return
	}
	p.inbox = append(p.inbox, msg)
}

// message waits for the next control message with this function, and drops those before it.
func (p *Peer) message(f protocol.Function) []byte {
	p.t.Helper()
	for {
		p.until(p.session, func() bool { return len(p.inbox) > 0 }, f.String())
		msg := p.inbox[0]
		p.inbox = p.inbox[1:]
		if h, err := protocol.DecodeHeader(msg); err == nil && h.Function == f {
			return msg
		}
	}
}

// completed waits until all sends have completed.
func (p *Peer) completed() {
	p.t.Helper()
	p.until(p.ctx, func() bool { return p.sent == p.posted }, "its sends to complete")
}

// send sends a control message.
func (p *Peer) send(msg []byte) {
	p.t.Helper()
	p.post(p.control, fabric.SendWR{Op: fabric.OpSend}, msg)
}

// request sends a request and returns the status of the reply.
func (p *Peer) request(t protocol.CfgType, data []byte) protocol.CfgStatus {
	p.t.Helper()
	const context = 99
	p.send(protocol.AppendCfgUtilRequest(nil, protocol.CfgUtilRequest{TransactionContext: context, Type: t, Data: data}))
	for { // the replies to requests that do not wait for them may still come
		m, err := protocol.DecodeCfgUtilReply(p.message(protocol.FuncCfgUtilReply))
		p.ok(err)
		if m.TransactionContext == context {
			return m.Status
		}
	}
}

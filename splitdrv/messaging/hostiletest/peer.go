package hostiletest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
)

// patience is the time limit of every wait.
const patience = testenv.Patience

// The sizes of the peer's memory: receives of the control channel, receives of the data channels, the
// pool that it lends, and the data that it sends.
const (
	controlReceives = 64
	dataReceives    = 4 // on each data channel
	ownElements     = dataReceives
	ownElement      = 2048
	ownSize         = ownElements * ownElement
	scratchSize     = 512 << 10
)

// Peer is a peer made of bare queue pairs, which does what an attack requires and not what the
// protocol requires. It has a method for each step of attacks, and fields for what it knows of the
// session, for its own objects on the device, and for what it has sent and received: attacks combine
// all of these. Only one goroutine may use it.
type Peer struct {
	// Pools has the pools that the session under attack lends, after Started.
	Pools []protocol.Pool

	*Queues
	t       testing.TB
	ctx     context.Context
	session context.Context // done when the session has ended, if Watch was called
	mode    protocol.Mode
	timing  fabric.Timing
	remote  []fabric.Address   // addresses of the session's queue pairs, once connected
	keys    map[element]uint32 // first keys of the elements of one-touch pools
	seq     uint64             // number of the next SendData
}

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
	p := &Peer{keys: make(map[element]uint32), mode: cfg.Mode, timing: cfg.Timing}
	p.renew(t)
	c := QueuesConfig{
		Device: cfg.Device, Transport: fabric.RC, Channels: cfg.Channels, Receives: controlReceives,
		DataReceives: dataReceives, DataSize: ownElement, Lent: ownSize, Scratch: scratchSize,
	}
	if cfg.Mode.Lossy() {
		c.Transport = fabric.UC
	}
	if cfg.OneReceive {
		c.Receives, c.Once = 1, true
	}
	var err error
	p.Queues, err = NewQueues(c)
	p.ok(err)
	p.Answer = p.answer
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close the attacker's queue pairs: %v", err)
		}
	})
	return p
}

// answer returns the status of the reply to a request. The peer accepts keys.
func (p *Peer) answer(r protocol.CfgUtilRequest) protocol.CfgStatus {
	if r.Type != protocol.CfgPoolKeys {
		return protocol.CfgUnsupported
	}
	k, err := protocol.DecodePoolKeys(r.Data)
	p.ok(err)
	for i := range k.Len() {
		p.keys[element{k.Pool, k.First + uint32(i)}] = k.At(i)
	}
	return protocol.CfgOK
}

// Addresses returns the addresses of the queue pairs, that of the control channel first.
func (p *Peer) Addresses() []fabric.Address {
	all := []fabric.Address{p.Control.Address()}
	for _, q := range p.Data {
		all = append(all, q.Address())
	}
	return all
}

// Connect connects the queue pairs to those of the session under attack.
func (p *Peer) Connect(remote []fabric.Address) {
	p.t.Helper()
	if len(remote) != 1+len(p.Data) {
		p.t.Fatalf("the attacker has %d channels, the session %d", 1+len(p.Data), len(remote))
	}
	p.remote = remote
	p.ok(p.Control.Connect(remote[0], p.timing))
	for i, q := range p.Data {
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

// post posts a work request with data, which it copies.
func (p *Peer) post(q fabric.QP, wr fabric.SendWR, data []byte) {
	p.t.Helper()
	p.ok(p.Post(q, wr, data))
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
	if err := p.Until(ctx, cond); err != nil {
		p.t.Fatalf("the attacker waits for %s: %v", what, err)
	}
}

// message waits for the next control message with this function, and drops those before it.
func (p *Peer) message(f protocol.Function) []byte {
	p.t.Helper()
	msg, err := p.Message(p.session, f)
	p.ok(err)
	return msg
}

// completed waits until all sends have completed.
func (p *Peer) completed() {
	p.t.Helper()
	p.until(p.ctx, func() bool { return p.Sent == p.Posted }, "its sends to complete")
}

func (p *Peer) send(msg []byte) {
	p.t.Helper()
	p.post(p.Control, fabric.SendWR{Op: fabric.OpSend}, msg)
}

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

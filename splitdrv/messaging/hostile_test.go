package messaging_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/conform"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// rawPeer is a peer made of bare queue pairs, which does what the test wants and not what the
// protocol requires. Package hostiletest tests what a session refuses.
type rawPeer struct {
	t      *testing.T
	mem    []byte
	region fabric.Region
	cq     fabric.CQ
	ctrl   fabric.QP
	data   fabric.QP
	pools  []protocol.Pool    // lent by the endpoint
	status protocol.CfgStatus // status in replies
	next   int                // offset in the scratch memory for the next message
	got    uint64             // number of control messages received
}

const rawReceives = 64

// newRawPeer connects an endpoint under test to a raw peer. It receives the offer of the first
// pools.
func newRawPeer(t *testing.T, cfg messaging.Config) (*endpoint, *rawPeer) {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	n := fabrictest.New()
	h := newEndpoint(t, n, "a", patient(cfg))
	dev := n.Device("raw")
	t.Cleanup(func() { dev.Close() })
	p := &rawPeer{t: t, mem: conform.Alloc(t, (rawReceives+1)*protocol.MaxControlSize)}
	dom, err := dev.NewDomain()
	p.ok(err)
	p.region, err = dom.Register(p.mem, fabric.LocalWrite|fabric.RemoteWrite)
	p.ok(err)
	p.cq, err = dom.NewCQ(4096, 0)
	p.ok(err)
	for _, qp := range []*fabric.QP{&p.ctrl, &p.data} {
		*qp, err = dom.NewQP(fabric.QPConfig{Transport: fabric.RC, SendCQ: p.cq, RecvCQ: p.cq, MaxSend: 1024, MaxRecv: 128})
		p.ok(err)
	}
	for i := range rawReceives {
		p.postRecv(i)
	}
	p.ok(h.conn.Connect([]fabric.Address{p.ctrl.Address(), p.data.Address()}, 1000))
	remote := h.conn.Addresses()
	p.ok(p.ctrl.Connect(remote[0], fabric.Timing{}))
	p.ok(p.data.Connect(remote[1], fabric.Timing{}))
	p.ok(h.conn.Start(h.ports))
	m, err := protocol.DecodeBufferRecvPool(p.receive())
	p.ok(err)
	for i := range m.Len() {
		p.pools = append(p.pools, m.At(i))
	}
	return h, p
}

func (p *rawPeer) ok(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// postRecv posts receive i of the control channel.
func (p *rawPeer) postRecv(i int) {
	p.t.Helper()
	_, err := p.ctrl.PostRecv([]fabric.RecvWR{{
		ID: uint64(i), Addr: p.region.Addr() + uint64(i*protocol.MaxControlSize),
		Len: protocol.MaxControlSize, LKey: p.region.LKey(),
	}})
	p.ok(err)
}

// receive waits for the next control message.
func (p *rawPeer) receive() []byte {
	p.t.Helper()
	return p.receiveBy(deadline(p.t))
}

// receiveBy is receive for a loop, which ctx ends even if messages keep coming.
func (p *rawPeer) receiveBy(ctx context.Context) []byte {
	p.t.Helper()
	var c [1]fabric.Completion
	for {
		p.ok(ctx.Err())
		p.ok(p.cq.Arm(false))
		n, err := p.cq.Poll(c[:])
		p.ok(err)
		switch {
		case n == 0:
			p.ok(p.cq.Wait(ctx))
		case c[0].Status == fabric.StatusSuccess && c[0].Op == fabric.OpRecv:
			p.got++
			return p.mem[int(c[0].ID)*protocol.MaxControlSize:][:c[0].Len]
		}
	}
}

func (p *rawPeer) scratch() []byte { return p.mem[rawReceives*protocol.MaxControlSize:] }

func (p *rawPeer) post(qp fabric.QP, wr fabric.SendWR, data []byte) error {
	if p.next+len(data) >= len(p.scratch()) {
		p.next = 0
	}
	at := p.scratch()[p.next:]
	p.next += copy(at, data) // the message before may still be on its way
	wr.Addr, wr.Len, wr.LKey = uint64(uintptr(unsafe.Pointer(&at[0]))), uint32(len(data)), p.region.LKey()
	wr.Flags |= fabric.Signaled | fabric.Solicited
	_, err := qp.PostSend([]fabric.SendWR{wr})
	return err
}

func (p *rawPeer) send(msg []byte) {
	p.t.Helper()
	p.ok(p.post(p.ctrl, fabric.SendWR{Op: fabric.OpSend}, msg))
}

// write writes data into an element of a lent pool, with imm as immediate data. The queue may be full.
func (p *rawPeer) write(pool, elem int, imm protocol.ImmData, data []byte) error {
	l := p.pools[pool]
	return p.post(p.data, fabric.SendWR{
		Op: fabric.OpWriteImm, RemoteAddr: l.Addr + uint64(elem)*uint64(l.ElementSize), RKey: l.RKey, Imm: uint32(imm),
	}, data)
}

func (p *rawPeer) ownPool(ref uint32) protocol.Pool {
	return protocol.Pool{
		Ref: ref, Elements: 4, ElementSize: 2048, RKey: p.region.RKey(), Addr: p.region.Addr(),
		Context: protocol.PoolContext(1, 0),
	}
}

func good(n int) []byte { return frame(1, n, 1500) }

// TestTooManyRequests sends requests to an endpoint whose OnRequest does not return. The
// session must end when there are more than MaxRequests unanswered requests.
func TestTooManyRequests(t *testing.T) {
	entered := make(chan struct{}, messaging.MaxRequests) // after release, more than one request may enter
	ctx, release := context.WithCancel(context.Background())
	h, p := newRawPeer(t, messaging.Config{OnRequest: func(protocol.CfgType, []byte) (protocol.CfgStatus, []byte) {
		entered <- struct{}{}
		<-ctx.Done()
		return protocol.CfgOK, nil
	}})
	t.Cleanup(release) // before the endpoint is closed
	request := protocol.AppendCfgUtilRequest(nil, protocol.CfgUtilRequest{Type: protocol.CfgMTU})
	p.send(request)
	<-entered
	received := h.conn.Stats().ControlReceived
	for range messaging.MaxRequests - 1 {
		p.send(request)
	}
	until(t, func() error {
		if got := h.conn.Stats().ControlReceived - received; got < messaging.MaxRequests-1 {
			return fmt.Errorf("%d requests have arrived", got)
		}
		return nil
	})
	if err := h.conn.Err(); err != nil {
		t.Fatalf("%d unanswered requests ended the session: %v", messaging.MaxRequests, err)
	}
	p.send(request)
	if err := ended(t, h); !errors.Is(err, messaging.ErrTooManyRequests) {
		t.Errorf("%v", err)
	}
}

package messaging_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// rawPeer is a peer made of bare queue pairs, which does what the test says
// and not what the protocol says.
type rawPeer struct {
	t      *testing.T
	mem    []byte
	region fabric.Region
	cq     fabric.CQ
	ctrl   fabric.QP
	data   fabric.QP
	pools  []protocol.Pool // lent by the other side
}

const rawReceives = 64

// newRawPeer connects a half under test to a raw peer and takes the pools that
// it lends.
func newRawPeer(t *testing.T, cfg messaging.Config) (*half, *rawPeer) {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	n := fabrictest.New()
	h := newHalf(t, n, "a", patient(cfg))
	dev := n.Device("raw")
	t.Cleanup(func() { dev.Close() })
	p := &rawPeer{t: t, mem: fabrictest.Alloc(t, (rawReceives+1)*protocol.MaxControlSize)}
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
		ID: uint64(i), Addr: p.region.Addr() + uint64(i*protocol.MaxControlSize), Len: protocol.MaxControlSize, LKey: p.region.LKey(),
	}})
	p.ok(err)
}

// receive waits for the next control message.
func (p *rawPeer) receive() []byte {
	p.t.Helper()
	ctx := deadline(p.t)
	var c [1]fabric.Completion
	for {
		p.ok(p.cq.Arm(false))
		n, err := p.cq.Poll(c[:])
		p.ok(err)
		switch {
		case n == 0:
			p.ok(p.cq.Wait(ctx))
		case c[0].Status == fabric.StatusSuccess && c[0].Op == fabric.OpRecv:
			return p.mem[int(c[0].ID)*protocol.MaxControlSize:][:c[0].Len]
		}
	}
}

func (p *rawPeer) scratch() []byte { return p.mem[rawReceives*protocol.MaxControlSize:] }

func (p *rawPeer) post(qp fabric.QP, wr fabric.SendWR, data []byte) {
	p.t.Helper()
	n := copy(p.scratch(), data)
	wr.Addr, wr.Len, wr.LKey = uint64(uintptr(unsafe.Pointer(&p.scratch()[0]))), uint32(n), p.region.LKey()
	wr.Flags |= fabric.Signaled | fabric.Solicited
	_, err := qp.PostSend([]fabric.SendWR{wr})
	p.ok(err)
}

func (p *rawPeer) send(msg []byte) { p.post(p.ctrl, fabric.SendWR{Op: fabric.OpSend}, msg) }

// write writes data into an element of a lent pool and indicates imm.
func (p *rawPeer) write(pool, elem int, imm protocol.ImmData, data []byte) {
	l := p.pools[pool]
	p.post(p.data, fabric.SendWR{
		Op: fabric.OpWriteImm, RemoteAddr: l.Addr + uint64(elem)*uint64(l.ElementSize), RKey: l.RKey, Imm: uint32(imm),
	}, data)
}

func (p *rawPeer) ownPool(ref uint32) protocol.Pool {
	return protocol.Pool{
		Ref: ref, Elements: 4, ElementSize: 2048, RKey: p.region.RKey(), Addr: p.region.Addr(), Context: protocol.PoolContext(1, 0),
	}
}

func good(n int) []byte { return frame(1, n, 1500) }

// TestHostilePeer shows for everything that a peer can do wrong that the
// session ends with the error that names it, and nothing else happens.
func TestHostilePeer(t *testing.T) {
	header := func(f protocol.Function) []byte { return []byte{byte(f >> 8), byte(f), 0, 1, 0, 0, 0, 0, 0, 0, 0, 0} }
	reply := protocol.AppendCfgUtilReply(nil, protocol.CfgUtilReply{TransactionContext: 77, Type: protocol.CfgMTU})
	badHeader := good(100)
	(&vnet.Header{Flags: vnet.FlagNeedsCsum, CsumStart: 90, CsumOffset: 16}).Encode(badHeader)
	for _, c := range []struct {
		name string
		do   func(p *rawPeer)
		want error
	}{
		{"a pool that was never lent", func(p *rawPeer) { p.write(0, 0, protocol.PackImm(9, 0, 100), good(100)) }, messaging.ErrPool},
		{"an element beyond the pool", func(p *rawPeer) { p.write(1, 0, protocol.PackImm(1, 200, 100), good(100)) }, bufpool.ErrNotLent},
		{"an element consumed twice", func(p *rawPeer) {
			p.write(0, 3, protocol.PackImm(0, 3, 100), good(100))
			p.write(0, 3, protocol.PackImm(0, 3, 100), good(100))
		}, bufpool.ErrNotLent},
		{"a length over the element's size", func(p *rawPeer) { p.write(0, 0, protocol.PackImm(0, 0, 2049), good(2049)) }, bufpool.ErrLength},
		{"a length that was not written", func(p *rawPeer) { p.write(0, 0, protocol.PackImm(0, 0, 200), good(100)) }, messaging.ErrIndicatedLength},
		{"nothing written", func(p *rawPeer) { p.write(0, 0, protocol.PackImm(0, 0, 0), nil) }, bufpool.ErrLength},
		{"a frame without Ethernet header", func(p *rawPeer) { p.write(0, 0, protocol.PackImm(0, 0, 23), good(100)[:23]) }, messaging.ErrFrame},
		{"a header that points outside the frame", func(p *rawPeer) { p.write(0, 0, protocol.PackImm(0, 0, 100), badHeader) }, messaging.ErrFrame},

		{"a control message without header", func(p *rawPeer) { p.send([]byte{1, 2, 3}) }, protocol.ErrShort},
		{"an unknown function", func(p *rawPeer) { p.send(header(99)) }, protocol.ErrFunction},
		{"another version", func(p *rawPeer) { p.send([]byte{0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0}) }, protocol.ErrVersion},
		{"no pools", func(p *rawPeer) { p.send(header(protocol.FuncBufferRecvPool)) }, protocol.ErrCount},
		{"a pool that wraps around", func(p *rawPeer) {
			l := p.ownPool(0)
			l.Addr = ^uint64(0) - 2048
			p.send(protocol.AppendBufferRecvPool(nil, 0, l))
		}, protocol.ErrOverflow},
		{"a pool of too many elements", func(p *rawPeer) {
			l := p.ownPool(0)
			l.Elements = protocol.MaxPoolElements + 1
			p.send(protocol.AppendBufferRecvPool(nil, 0, l))
		}, protocol.ErrCount},
		{"a pool for a channel that is not there", func(p *rawPeer) {
			l := p.ownPool(0)
			l.Context = protocol.PoolContext(2, 0)
			p.send(protocol.AppendBufferRecvPool(nil, 0, l))
		}, messaging.ErrNoChannel},
		{"the same pool twice", func(p *rawPeer) { p.send(protocol.AppendBufferRecvPool(nil, 0, p.ownPool(5), p.ownPool(5))) }, messaging.ErrPoolTwice},
		{"too many pools", func(p *rawPeer) {
			var ls []protocol.Pool
			for i := range (messaging.Config{}).Lends() + 1 {
				ls = append(ls, p.ownPool(uint32(i)))
			}
			p.send(protocol.AppendBufferRecvPool(nil, 0, ls...))
		}, messaging.ErrTooManyPools},
		{"too many elements", func(p *rawPeer) {
			a, b := p.ownPool(0), p.ownPool(1)
			a.Elements, b.Elements = messaging.MaxChannelElements-1, 2
			p.send(protocol.AppendBufferRecvPool(nil, 0, a, b))
		}, messaging.ErrTooManyElements},
		{"an update of a pool that was not lent", func(p *rawPeer) {
			p.send(protocol.AppendBufferRecvPoolUpdate(nil, 0, protocol.PoolReturn{Pool: 3, Elements: []uint16{0}}))
		}, messaging.ErrPool},
		{"an update of a pool with a huge reference", func(p *rawPeer) {
			p.send(protocol.AppendBufferRecvPoolUpdate(nil, 0, protocol.PoolReturn{Pool: 1 << 31, Elements: []uint16{0}}))
		}, messaging.ErrPool},
		{"an update for an element that is not out", func(p *rawPeer) {
			p.send(protocol.AppendBufferRecvPool(nil, 0, p.ownPool(3)))
			p.send(protocol.AppendBufferRecvPoolUpdate(nil, 0, protocol.PoolReturn{Pool: 3, Elements: []uint16{1}}))
		}, bufpool.ErrNotOut},
		{"an update for an element that does not exist", func(p *rawPeer) {
			p.send(protocol.AppendBufferRecvPool(nil, 0, p.ownPool(3)))
			p.send(protocol.AppendBufferRecvPoolUpdate(nil, 0, protocol.PoolReturn{Pool: 3, Elements: []uint16{4}}))
		}, bufpool.ErrNotOut},
		{"a truncated update", func(p *rawPeer) {
			m := protocol.AppendBufferRecvPoolUpdate(nil, 0, protocol.PoolReturn{Pool: 3, Elements: []uint16{1, 2, 3, 4}})
			p.send(m[:len(m)-4])
		}, protocol.ErrShort},
		{"a reply to no request", func(p *rawPeer) { p.send(reply) }, messaging.ErrReply},
		{"an RDMA write on the control channel", func(p *rawPeer) {
			l := p.pools[0]
			p.post(p.ctrl, fabric.SendWR{Op: fabric.OpWriteImm, RemoteAddr: l.Addr, RKey: l.RKey}, good(100))
		}, messaging.ErrUnexpected},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, p := newRawPeer(t, messaging.Config{})
			c.do(p)
			err := ended(t, h)
			var pe *messaging.ProtocolError
			if !errors.As(err, &pe) || !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if n := h.conn.Stats().Channels[0].RxFrames; n > 1 {
				t.Errorf("%d frames were taken", n)
			}
		})
	}
}

// TestHostileSend sends a message where only RDMA writes belong. The receives
// there have no memory, so that one with data fails in the fabric already.
func TestHostileSend(t *testing.T) {
	h, p := newRawPeer(t, messaging.Config{})
	p.post(p.data, fabric.SendWR{Op: fabric.OpSend}, nil)
	if err := ended(t, h); !errors.Is(err, messaging.ErrDataSend) {
		t.Errorf("%v", err)
	}
}

// TestTooManyRequests floods a half whose configuration is busy.
func TestTooManyRequests(t *testing.T) {
	entered := make(chan struct{}, messaging.MaxRequests) // more than one may be begun once they are released
	ctx, release := context.WithCancel(context.Background())
	h, p := newRawPeer(t, messaging.Config{OnRequest: func(protocol.CfgType, []byte) (protocol.CfgStatus, []byte) {
		entered <- struct{}{}
		<-ctx.Done()
		return protocol.CfgOK, nil
	}})
	t.Cleanup(release) // before the half is closed
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

package messaging_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// answer answers a request of the endpoint.
func (p *rawPeer) answer(msg []byte) {
	p.t.Helper()
	m, err := protocol.DecodeCfgUtilRequest(msg)
	p.ok(err)
	p.send(protocol.AppendCfgUtilReply(nil, protocol.CfgUtilReply{TransactionContext: m.TransactionContext, Type: m.Type,
		Status: p.status}))
	p.recycle(msg)
}

// recycle posts the receive that received msg again.
func (p *rawPeer) recycle(msg []byte) {
	p.t.Helper()
	for i := range rawReceives {
		if &p.mem[i*protocol.MaxControlSize] == &msg[0] {
			p.postRecv(i)
			return
		}
	}
	p.t.Fatal("not a message that was received")
}

// function waits for a message with this function, and answers the requests before it.
func (p *rawPeer) function(f protocol.Function) []byte {
	p.t.Helper()
	ctx := deadline(p.t)
	for {
		msg := p.receiveBy(ctx)
		h, err := protocol.DecodeHeader(msg)
		p.ok(err)
		switch h.Function {
		case f:
			return msg
		case protocol.FuncCfgUtilRequest:
			p.answer(msg)
		default:
			p.recycle(msg)
		}
	}
}

// TestReferenceUsedAgainAtOnce lends a pool under the same reference again in the very next
// message after the reply that ends the former pool.
func TestReferenceUsedAgainAtOnce(t *testing.T) {
	h, p := newRawPeer(t, messaging.Config{PoolIdle: 4 * time.Millisecond})
	p.send(protocol.AppendBufferRecvPool(nil, 0, p.ownPool(0)))
	ctx := deadline(t)
	if err := h.wires[0].Send(ctx, frame(1, 5000, 1500)); err != nil { // fits no pool, and is dropped
		t.Fatal(err)
	}
	until(t, func() error {
		if h.conn.Stats().PoolsAsked == 0 {
			return errors.New("no pool was asked for")
		}
		return nil
	})
	get := p.function(protocol.FuncBufferRecvPoolGet)
	asked, err := protocol.DecodeBufferRecvPoolGet(get)
	p.ok(err)
	p.recycle(get)
	wanted := p.ownPool(1)
	wanted.Elements, wanted.ElementSize = 1, (asked.ElementSize+63)/64*64
	p.send(protocol.AppendBufferRecvPool(nil, 0, wanted))
	for range 200 {
		msg := p.function(protocol.FuncBufferPoolFlushRequest)
		m, err := protocol.DecodeBufferPoolFlushRequest(msg)
		p.ok(err)
		if m.Len() != 1 || m.Pool(0) != 1|protocol.FlushGiveBack {
			t.Fatalf("a flush of %d pools, the first %#x", m.Len(), m.Pool(0))
		}
		p.send(protocol.AppendBufferPoolFlushReply(nil, m.TransactionContext))
		p.send(protocol.AppendBufferRecvPool(nil, 0, wanted))
		p.recycle(msg)
	}
	if err := h.conn.Err(); err != nil {
		t.Error(err)
	}
}

// TestPoolThatIsNotOfferedYet delays the offer of a granted pool, because its receiver waits
// for a full port, for longer than PoolIdle. The pool must not be taken back before it is
// offered.
func TestPoolThatIsNotOfferedYet(t *testing.T) {
	h, p := newRawPeer(t, messaging.Config{
		Pools: []messaging.PoolConfig{{ElementSize: 2048, Elements: 256}}, MaxPools: 2,
		PoolIdle: 4 * time.Millisecond, KeepAlive: 5 * time.Millisecond,
	})
	// More frames than the sockets hold, each in an element of its own.
	elem := 0
	busy := func() bool { return h.conn.Stats().Channels[0].RxPortBusy > 0 }
	for ; !busy(); elem++ {
		if elem == 256 {
			elem = 0
			p.recycle(p.function(protocol.FuncBufferRecvPoolUpdate))
		}
		until(t, func() error { // the queue has room, unless its receiver waits
			err := p.write(0, elem, protocol.PackImm(0, uint8(elem), 2000), good(2000))
			if errors.Is(err, fabric.ErrQueueFull) && busy() {
				return nil
			}
			return err
		})
	}
	p.send(protocol.AppendBufferRecvPoolGet(nil, protocol.BufferRecvPoolGet{ElementSize: 2048, Elements: 4, Channel: 1}))
	for signs := 0; signs < 20; {
		msg := p.receive()
		d, err := protocol.DecodeHeader(msg)
		p.ok(err)
		switch d.Function {
		case protocol.FuncCfgUtilRequest:
			signs++
			p.answer(msg)
		case protocol.FuncBufferRecvPoolUpdate:
			p.recycle(msg)
		default:
			t.Fatalf("%v, while no pool can have been offered", d.Function)
		}
	}
	if n := h.conn.Stats().PoolsGranted; n != 1 {
		t.Errorf("%d pools were granted", n)
	}
}

// TestBooksOfAPeer lends and takes back pools of the largest size, each under a new reference.
// The number of elements that the endpoint remembers must be bounded.
func TestBooksOfAPeer(t *testing.T) {
	h, p := newRawPeer(t, messaging.Config{})
	const refs = 5
	for ref := range uint32(refs) { // more would take a second each
		l := p.ownPool(ref)
		l.Elements = protocol.MaxPoolElements
		p.send(protocol.AppendBufferRecvPool(nil, 0, l))
		p.send(protocol.AppendBufferPoolFlushRequest(nil, uint64(ref), ref))
		p.recycle(p.function(protocol.FuncBufferPoolFlushReply))
		if n := h.conn.Remembered(refs); n > 2*messaging.MaxChannelElements {
			t.Fatalf("after %d pools %d elements are remembered", ref+1, n)
		}
	}
	if err := h.conn.Err(); err != nil {
		t.Error(err)
	}
}

// TestPoolIsAskedForAgain has the endpoint ask a peer for pools that grants little, and
// answers all requests with an error status. Any reply confirms that the messages before it
// were handled. After a grant, the endpoint must not wait longer and longer before it asks
// again.
func TestPoolIsAskedForAgain(t *testing.T) {
	const asks = 20 // with a pause of 5 s before most of them it would take too long
	h, p := newRawPeer(t, messaging.Config{PeerPools: asks + 2})
	p.status = protocol.CfgUnsupported
	p.send(protocol.AppendBufferRecvPool(nil, 0, p.ownPool(0)))
	ctx, stop := context.WithCancel(deadline(t))
	var sender sync.WaitGroup
	t.Cleanup(sender.Wait)
	t.Cleanup(stop)
	sender.Go(func() {
		for h.wires[0].Send(ctx, frame(1, 5000, 1500)) == nil { // fits no pool
		}
	})
	for ref := range uint32(asks) {
		p.recycle(p.function(protocol.FuncBufferRecvPoolGet))
		p.send(protocol.AppendBufferRecvPool(nil, 0, p.ownPool(ref+1)))
	}
	if err := h.conn.Err(); err != nil {
		t.Error(err)
	}
}

// TestFlushAcknowledgesIndications gives back pools right behind indications. One update must
// still acknowledge these, with the element that was indicated last: in mode imm the initiator
// waits for it, and in mode indicate the number of unacknowledged indications is limited. The
// peer has a receive for one update of each pool that ends.
func TestFlushAcknowledgesIndications(t *testing.T) {
	const elem = 3
	for _, tt := range []struct {
		mode           protocol.Mode
		indicated, end []int // pools
	}{
		{protocol.ModeImm, []int{0}, []int{0}},
		{protocol.ModeImm, []int{0}, []int{1, 0}},
		{protocol.ModeIndicate, []int{0}, []int{0}},
		{protocol.ModeIndicate, []int{0, 1}, []int{0, 1}},
		{protocol.ModeIndicate, []int{1, 0}, []int{0, 1}},
	} {
		t.Run(fmt.Sprintf("%s %v %v", tt.mode, tt.indicated, tt.end), func(t *testing.T) {
			// In mode imm nothing is indicated of pools that immediate data can name.
			size := messaging.PoolConfig{ElementSize: 2048, Elements: protocol.MaxImmElements + 1}
			h, p := newRawPeer(t, messaging.Config{Mode: tt.mode, Pools: []messaging.PoolConfig{size, size}})
			data := good(200)
			var last protocol.Pool
			for _, i := range tt.indicated {
				last = p.pools[i]
				at := last.Addr + elem*uint64(last.ElementSize)
				p.ok(p.post(p.data, fabric.SendWR{Op: fabric.OpWrite, RemoteAddr: at, RKey: last.RKey}, data))
				for { // it may be indicated after its completion
					var c [1]fabric.Completion
					n, err := p.cq.Poll(c[:])
					p.ok(err)
					if n == 1 && c[0].Op == fabric.OpWrite {
						p.ok(c[0].Err())
						break
					}
				}
				p.send(protocol.AppendBufferRDMAIndicate(nil, 0,
					protocol.Indication{Pool: last.Ref, Element: elem, Length: uint32(len(data))}))
			}
			var refs []uint32
			for _, i := range tt.end {
				refs = append(refs, p.pools[i].Ref|protocol.FlushGiveBack)
			}
			p.send(protocol.AppendBufferPoolFlushRequest(nil, 7, refs...))
			ctx := deadline(t)
			updates, acknowledged := 0, false
			for replied := false; !replied; {
				msg := p.receiveBy(ctx)
				d, err := protocol.DecodeHeader(msg)
				p.ok(err)
				switch d.Function {
				case protocol.FuncBufferRecvPoolUpdate:
					m, err := protocol.DecodeBufferRecvPoolUpdate(msg)
					p.ok(err)
					for r := m.Returns(); r.Next(); {
						acknowledged = acknowledged || r.Pool() == last.Ref && r.Len() == 1 && r.Element(0) == elem
					}
					updates++
				case protocol.FuncBufferPoolFlushReply:
					replied = true
				case protocol.FuncCfgUtilRequest:
					p.answer(msg)
					continue
				default:
					t.Fatalf("%v", d.Function)
				}
				p.recycle(msg)
			}
			if updates != 1 || !acknowledged {
				t.Errorf("%d updates before the reply, the last indication is acknowledged: %t", updates, acknowledged)
			}
			if s := h.conn.Stats().Channels[0]; s.RxFrames != uint64(len(tt.indicated)) {
				t.Errorf("%d frames were delivered", s.RxFrames)
			}
		})
	}
}

// TestPoolsAskedForTooOften has a peer ask for pools and give them back as fast as possible.
// It must get as many as the endpoint can lend, and then no more per second than an honest
// peer asks for.
func TestPoolsAskedForTooOften(t *testing.T) {
	const asks, pools, rate = 300, 2, 20
	h, p := newRawPeer(t, messaging.Config{Pools: []messaging.PoolConfig{{ElementSize: 2048, Elements: 4}},
		MaxPools: pools})
	begun := time.Now()
	granted := uint64(0)
	for i := range uint64(asks) {
		p.send(protocol.AppendBufferRecvPoolGet(nil, protocol.BufferRecvPoolGet{ElementSize: 2048, Elements: 4, Channel: 1}))
		until(t, func() error {
			if s := h.conn.Stats(); s.PoolsGranted+s.PoolsRefused != i+1 {
				return fmt.Errorf("%d granted and %d refused of %d", s.PoolsGranted, s.PoolsRefused, i+1)
			}
			return nil
		})
		if n := h.conn.Stats().PoolsGranted; n == granted {
			continue
		}
		granted++
		lent := p.function(protocol.FuncBufferRecvPool)
		m, err := protocol.DecodeBufferRecvPool(lent)
		p.ok(err)
		ref := m.At(0).Ref
		p.recycle(lent)
		p.send(protocol.AppendBufferPoolFlushRequest(nil, i+1, ref|protocol.FlushGiveBack))
		p.recycle(p.function(protocol.FuncBufferPoolFlushReply))
	}
	if most := pools + rate*time.Since(begun).Seconds(); granted < pools || float64(granted) > most {
		t.Errorf("%d pools were lent, at least %d and at most %.0f", granted, pools, most)
	}
	if err := h.conn.Err(); err != nil {
		t.Error(err)
	}
}

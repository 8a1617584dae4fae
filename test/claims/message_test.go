package claims

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

func TestMessageBufferRecvPool(t *testing.T)     { inMemory(t, messageBufferRecvPool) }
func TestRDMAMessageBufferRecvPool(t *testing.T) { onSoftRoCE(t, messageBufferRecvPool) }

// A target advertises several pools in one message. Each pool has a unique reference, the number
// and size of its elements, the address and handle of the registered memory, and a context that
// contains the channel of the pool.
func messageBufferRecvPool(t *testing.T, on fabricOf) {
	pools := []messaging.PoolConfig{{ElementSize: 256, Elements: 10}, {ElementSize: 4096, Elements: 20},
		{ElementSize: 65536, Elements: 3}}
	p := newPair(t, on, messaging.Config{Queues: 2, Pools: pools})
	for _, side := range sides {
		several := false
		for _, m := range of(p.posted(side), protocol.FuncBufferRecvPool) {
			d, err := protocol.DecodeBufferRecvPool(m.data)
			several = several || err == nil && d.Len() > 1
		}
		if !several {
			t.Errorf("%s: no message with several pools", side)
		}
		refs := map[uint32]bool{}
		left := map[int][]messaging.PoolConfig{1: slices.Clone(pools), 2: slices.Clone(pools)}
		for _, l := range p.lent(side) {
			if refs[l.Ref] {
				t.Errorf("%s: two pools with reference %d", side, l.Ref)
			}
			refs[l.Ref] = true
			p.memory(side, l)
			ch := int(l.Channel())
			i := slices.Index(left[ch], messaging.PoolConfig{ElementSize: int(l.ElementSize), Elements: int(l.Elements)})
			if i < 0 {
				t.Errorf("%s: channel %d has no such pool to lend: %+v", side, ch, l)
				continue
			}
			left[ch] = slices.Delete(left[ch], i, i+1)
		}
		if len(left[1])+len(left[2]) > 0 {
			t.Errorf("%s: not lent: %v", side, left)
		}
	}
}

func TestMessageBufferRecvPoolUpdate(t *testing.T)     { inMemory(t, messageBufferRecvPoolUpdate) }
func TestRDMAMessageBufferRecvPoolUpdate(t *testing.T) { onSoftRoCE(t, messageBufferRecvPoolUpdate) }

// A target returns elements that it has finished with, and only elements that were consumed. One
// message has several pools if several are due. The initiator uses the elements again.
func messageBufferRecvPoolUpdate(t *testing.T, on fabricOf) {
	p := newPair(t, on, messaging.Config{
		Pools:    []messaging.PoolConfig{{ElementSize: 512, Elements: 8}, {ElementSize: 2048, Elements: 4}},
		MaxPools: 2, // otherwise an initiator that waits for long gets another pool
	})
	type element struct{ pool, index uint32 }
	for _, side := range sides {
		// The frames arrive together and make updates of both pools due.
		var frames [][]byte
		for range 60 { // no element has room for two frames
			frames = append(frames, p.newFrame(300), p.newFrame(1900))
		}
		p.send(side, 0, frames...)
		p.expect(other(side), 0, frames...)
		if err := p.credits(side); err != nil {
			t.Error(err)
		}
		uses, several := map[element]int{}, false
		for _, w := range p.writes(side) {
			uses[element{w.pool.Ref, w.element}]++
		}
		for _, m := range of(p.posted(other(side)), protocol.FuncBufferRecvPoolUpdate) {
			d, err := protocol.DecodeBufferRecvPoolUpdate(m.data)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for r := d.Returns(); r.Next(); n++ {
				if r.Len() == 0 {
					t.Errorf("%s: an update that returns nothing", other(side))
				}
			}
			several = several || n > 1
		}
		if len(uses) > 12 || !several {
			t.Errorf("%s: %d elements used for 120 frames; an update of several pools: %t", side, len(uses), several)
		}
	}
}

func TestMessageCfgUtil(t *testing.T)     { inMemory(t, messageCfgUtil) }
func TestRDMAMessageCfgUtil(t *testing.T) { onSoftRoCE(t, messageCfgUtil) }

// Every request is answered by one reply with the transaction and type of the request. Both
// messages contain their data, and the reply has a status.
func messageCfgUtil(t *testing.T, on fabricOf) {
	denied := protocol.CfgOffloads
	p := newPair(t, on, messaging.Config{
		OnRequest: func(c protocol.CfgType, data []byte) (protocol.CfgStatus, []byte) {
			if c == denied {
				return protocol.CfgDenied, nil
			}
			return protocol.CfgOK, append([]byte("reply to "), data...)
		},
	})
	asked := map[protocol.CfgType][]byte{
		protocol.CfgMAC: []byte("a MAC address"), protocol.CfgMTU: nil, protocol.CfgLinkState: bytes.Repeat([]byte{7}, 1000),
		protocol.CfgKeepAlive: nil, denied: []byte("offloads"),
	}
	for _, side := range sides {
		for c, data := range asked {
			got, err := p.endpoints[side].conn.Request(deadline(t), c, data)
			var status *messaging.StatusError
			switch {
			case c == denied && (!errors.As(err, &status) || status.Status != protocol.CfgDenied):
				t.Errorf("%s: %v: %v", side, c, err)
			case c != denied && err != nil:
				t.Errorf("%s: %v: %v", side, c, err)
			case c == protocol.CfgMAC && string(got) != "reply to a MAC address":
				t.Errorf("%s: %v: %q", side, c, got)
			}
		}
		requests := map[uint64]protocol.CfgUtilRequest{}
		for _, m := range of(p.posted(side), protocol.FuncCfgUtilRequest) {
			d, err := protocol.DecodeCfgUtilRequest(m.data)
			if _, again := requests[d.TransactionContext]; err != nil || again {
				t.Errorf("%s: request %+v, a second time %t: %v", side, d, again, err)
			}
			requests[d.TransactionContext] = d
		}
		answered := map[protocol.CfgType]bool{}
		for _, m := range of(p.arrived(side), protocol.FuncCfgUtilReply) {
			d, err := protocol.DecodeCfgUtilReply(m.data)
			q, ok := requests[d.TransactionContext]
			delete(requests, d.TransactionContext)
			if err != nil || !ok || q.Type != d.Type {
				t.Errorf("%s: reply %+v to %+v: %v", side, d, q, err)
			}
			if d.Type != protocol.CfgKeepAlive && !bytes.Equal(q.Data, asked[d.Type]) {
				t.Errorf("%s: a request about %v carried %x", side, d.Type, q.Data)
			}
			if (d.Type == denied) != (d.Status == protocol.CfgDenied) {
				t.Errorf("%s: reply about %v with status %v", side, d.Type, d.Status)
			}
			answered[d.Type] = true
		}
		if len(answered) < len(asked) {
			t.Errorf("%s: answered: %v", side, answered)
		}
	}
}

// credits checks, in the order of the trace, that a side never wrote to an element that it had used
// and not got back, and that the other side never returned an element that was not consumed. writes
// checks that the element was lent.
func (o *observed) credits(side string) error {
	type element struct{ pool, index uint32 }
	out := map[element]bool{}
	events := map[int]func() error{}
	for _, w := range o.writes(side) {
		events[w.at] = func() error {
			e := element{w.pool.Ref, w.element}
			if out[e] {
				return fmt.Errorf("the %s wrote to element %d of pool %d, which it had not got back", side, e.index, e.pool)
			}
			out[e] = true
			return nil
		}
	}
	updates := of(o.arrived(side), protocol.FuncBufferRecvPoolUpdate)
	for _, m := range updates {
		events[m.at] = func() error {
			d, err := protocol.DecodeBufferRecvPoolUpdate(m.data)
			if err != nil {
				return err
			}
			for r := d.Returns(); r.Next(); {
				for i := range r.Len() {
					e := element{r.Pool(), uint32(r.Element(i))}
					if !out[e] {
						return fmt.Errorf("the %s returned element %d of pool %d, which was not out", other(side), e.index, e.pool)
					}
					delete(out, e)
				}
			}
			return nil
		}
	}
	if len(updates) == 0 {
		return fmt.Errorf("the %s returned nothing", other(side))
	}
	for at := range o.now() {
		if f := events[at]; f != nil {
			if err := f(); err != nil {
				return err
			}
		}
	}
	return nil
}

// readPort counts the frames that are read from a port.
type readPort struct {
	messaging.Port
	frames atomic.Uint64
}

func (p *readPort) ReadFrames(ops []vnet.ReadOp) int {
	n := p.Port.ReadFrames(ops)
	for i := range ops[:n] {
		if ops[i].Err == nil {
			p.frames.Add(1)
		}
	}
	return n
}

func TestFlowControl(t *testing.T)     { inMemory(t, flowControl) }
func TestRDMAFlowControl(t *testing.T) { onSoftRoCE(t, flowControl) }

// A side writes only to elements that it has been lent. When the receiver's port takes no frames,
// the sender stops, and stops reading from its netdevice. It continues with each element that is
// returned, and no frame is lost. A receive is posted for every element before the element is lent.
func flowControl(t *testing.T, on fabricOf) {
	const elements = 8
	cfg := messaging.Config{Pools: []messaging.PoolConfig{{ElementSize: 2048, Elements: elements}}}
	p := newEndpoints(t, on, map[string]messaging.Config{hostSide: cfg, unitSide: cfg})
	ports := map[string]*readPort{}
	for _, side := range sides {
		h := p.endpoints[side]
		ports[side] = &readPort{Port: h.ports[0]}
		h.ports[0] = ports[side]
	}
	p.connect()
	p.start()
	for _, side := range sides {
		frames := make([][]byte, 4000)
		for i := range frames {
			frames[i] = p.newFrame(1200)
		}
		sent := p.feed(side, 0, frames...)
		p.until(func() error {
			s, peer := p.endpoints[side].conn.Stats().Channels[0], p.endpoints[other(side)].conn.Stats().Channels[0]
			if s.TxNoCredit == 0 || s.Remote.Available != 0 || peer.RxPortBusy == 0 {
				return fmt.Errorf("the %s has not run out of credit: %+v", side, s)
			}
			if n := ports[side].frames.Load(); n != s.TxFrames {
				return fmt.Errorf("the %s has sent %d frames, and read %d", side, s.TxFrames, n)
			}
			return nil
		})
		p.expect(other(side), 0, frames...)
		if err := <-sent; err != nil {
			t.Error(err)
		}
		if err := p.credits(side); err != nil {
			t.Error(err)
		}
		q := p.qpns[other(side)][1]
		first := p.lent(other(side))[0].at
		if n := len(between(ofQP(q, p.pick(other(side), recvPosted)), 0, first)); n < elements {
			t.Errorf("%s: %d receives posted when %d elements were lent", other(side), n, elements)
		}
		// A receive is posted again before its element is returned.
		posted := 0
		for _, e := range p.pick(other(side), recvPosted, recvDone, sendPosted) {
			switch {
			case e.what == recvPosted && e.qpn == q:
				posted++
			case e.what == recvDone && e.qpn == q:
				posted--
			case e.what == sendPosted && e.send.Op == fabric.OpSend:
				d, err := protocol.DecodeBufferRecvPoolUpdate(e.data)
				if err != nil {
					continue
				}
				for r := d.Returns(); r.Next(); {
					if posted < r.Len() {
						t.Errorf("%s: %d elements returned with %d receives posted", other(side), r.Len(), posted)
					}
				}
			}
		}
	}
}

package claims

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// soonIdle is the PoolIdle of tests that wait until an unused pool goes back. Another pool is lent
// when credits are lacking often within a quarter of PoolIdle, and a quarter must be long enough
// for a slow machine.
const soonIdle = 500 * time.Millisecond

// scarce returns a configuration with so few elements that a sender soon requests more. Additional
// pools go back after the time idle without use.
func scarce(idle time.Duration) messaging.Config {
	return messaging.Config{Pools: []messaging.PoolConfig{{ElementSize: 2048, Elements: 4}}, MaxPools: 2, PoolIdle: idle}
}

// flood sends frames from one of the host's queues until cond holds, and checks
// that all of them arrive in order.
func (p *pair) flood(queue int, cond func() bool) {
	p.t.Helper()
	ctx := p.alive()
	const size = 1000
	template := p.newFrame(size)
	numbered := func(what string) []byte { return append(slices.Clone(template[:size-8]), what...) }
	stop := make(chan struct{})
	sent := make(chan error, 1)
	go func() {
		for n := 0; ; n++ {
			f := numbered(fmt.Sprintf("%08d", n))
			select {
			case <-stop:
				sent <- p.endpoints[hostSide].wires[queue].Send(ctx, numbered("the last"))
				return
			default:
			}
			if err := p.endpoints[hostSide].wires[queue].Send(ctx, f); err != nil {
				sent <- err
				return
			}
		}
	}()
	buf := make([]byte, 1<<17)
	stopped := false
	for n := 0; ; n++ {
		f, err := p.endpoints[unitSide].wires[queue].Receive(ctx, buf)
		if stopped && bytes.Equal(f, numbered("the last")) {
			break
		}
		if err != nil || !bytes.Equal(f, numbered(fmt.Sprintf("%08d", n))) {
			p.t.Fatalf("frame %d: %d bytes, %v (sessions: %v, %v)", n, len(f), err, p.endpoints[hostSide].conn.Err(),
				p.endpoints[unitSide].conn.Err())
		}
		if !stopped && n%64 == 0 && cond() {
			stopped = true
			close(stop)
		}
	}
	if err := <-sent; err != nil {
		p.t.Fatal(err)
	}
}

// extra returns the first pool that the I/O unit has lent on request.
func (p *pair) extra() (pool lentPool, ok bool) {
	lent, first := p.lent(unitSide), p.channels()-1 // one for each data channel
	if len(lent) <= first {
		return lentPool{}, false
	}
	return lent[first], true
}

func TestMessageBufferRecvPoolGet(t *testing.T)     { inMemory(t, messageBufferRecvPoolGet) }
func TestRDMAMessageBufferRecvPoolGet(t *testing.T) { onSoftRoCE(t, messageBufferRecvPoolGet) }

// An initiator that lacks elements requests another pool, with the size and number of elements that
// it wants. The target registers new memory and lends the pool, and the initiator uses it too.
func messageBufferRecvPoolGet(t *testing.T, on fabricOf) {
	cfg := scarce(time.Hour)
	cfg.Queues, cfg.Pools[0].ElementSize = 2, 4096
	p := newPair(t, on, cfg)
	used := func() bool {
		pool, ok := p.extra()
		return ok && slices.ContainsFunc(p.pick(hostSide, sendPosted),
			func(e entry) bool { return e.send.RKey == pool.RKey && e.at > pool.at })
	}
	p.flood(1, used)
	gets := of(p.posted(hostSide), protocol.FuncBufferRecvPoolGet)
	if len(gets) == 0 {
		t.Fatal("the host asked for nothing")
	}
	get, err := protocol.DecodeBufferRecvPoolGet(gets[0].data)
	if err != nil || get.Channel != 2 || get.ElementSize != 4096 || get.Elements != 4 {
		t.Errorf("the host asked for %+v: %v", get, err)
	}
	pool, _ := p.extra()
	arrived := of(p.arrived(unitSide), protocol.FuncBufferRecvPoolGet)
	if len(arrived) == 0 || pool.at < arrived[0].at || pool.ElementSize < get.ElementSize || pool.Channel() != 2 {
		t.Errorf("lent, before or after having been asked: %+v", pool)
	}
	if mem, _ := p.memory(unitSide, pool); mem.at < arrived[0].at {
		t.Errorf("no memory was registered for %+v", pool)
	}
	if err := p.credits(hostSide); err != nil {
		t.Error(err)
	}
}

func TestMessageBufferPoolFlush(t *testing.T)     { inMemory(t, messageBufferPoolFlush) }
func TestRDMAMessageBufferPoolFlush(t *testing.T) { onSoftRoCE(t, messageBufferPoolFlush) }

// Either side ends the use of a pool by a request that names the pool. The other side replies with
// the transaction of the request. The initiator does not write to the pool after its own message of
// this exchange, and the target deregisters the memory only after the exchange.
func messageBufferPoolFlush(t *testing.T, on fabricOf) {
	for _, c := range []struct {
		name         string
		host, ioUnit time.Duration // time after which each side gives up an unused pool
		asks         string
	}{
		{"by the target", time.Hour, soonIdle, unitSide},
		{"by the initiator", soonIdle, time.Hour, hostSide},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newEndpoints(t, on, map[string]messaging.Config{hostSide: scarce(c.host), unitSide: scarce(c.ioUnit)})
			p.connect()
			p.start()
			p.flood(0, func() bool { _, ok := p.extra(); return ok })
			pool, _ := p.extra()
			mem, _ := p.memory(unitSide, pool)
			var gone entry
			p.until(func() error {
				for _, e := range p.pick(unitSide, deregistered) {
					if e.addr == pool.Addr && e.rkey == mem.rkey {
						gone = e
					}
				}
				switch { // the target replies after it has deregistered the memory
				case gone.addr == 0:
					return errors.New("the pool is still registered")
				case len(of(p.posted(other(c.asks)), protocol.FuncBufferPoolFlushReply)) == 0:
					return errors.New("there is no reply")
				}
				return nil
			})
			requests := of(p.posted(c.asks), protocol.FuncBufferPoolFlushRequest)
			replies := of(p.posted(other(c.asks)), protocol.FuncBufferPoolFlushReply)
			got := of(p.arrived(c.asks), protocol.FuncBufferPoolFlushReply)
			if len(requests) == 0 || len(replies) == 0 || c.asks == unitSide && len(got) == 0 {
				t.Fatalf("%d requests, %d replies, %d arrived", len(requests), len(replies), len(got))
			}
			q, err := protocol.DecodeBufferPoolFlushRequest(requests[0].data)
			want := pool.Ref
			if c.asks == hostSide {
				want |= protocol.FlushGiveBack
			}
			if err != nil || q.Len() != 1 || q.Pool(0) != want {
				t.Errorf("the request names %d pools, the first is %d, not %d: %v", q.Len(), q.Pool(0), want, err)
			}
			r, err := protocol.DecodeBufferPoolFlushReply(replies[0].data)
			if err != nil || r.TransactionContext != q.TransactionContext {
				t.Errorf("transaction %d was answered as %d: %v", q.TransactionContext, r.TransactionContext, err)
			}
			// The initiator's last use is before its reply, or before its request.
			last := requests[0].at
			if c.asks == unitSide {
				last = replies[0].at
				if gone.at < got[0].at {
					t.Error("deregistered before the reply came")
				}
			} else if arrived := of(p.arrived(unitSide), protocol.FuncBufferPoolFlushRequest); gone.at < arrived[0].at {
				t.Error("deregistered before the request came")
			}
			for _, e := range p.pick(hostSide, sendPosted) {
				write := e.send.Op == fabric.OpWrite || e.send.Op == fabric.OpWriteImm
				if write && e.send.RKey == pool.RKey && e.at > last {
					t.Error("written to after the exchange")
				}
			}
			// The remaining pools suffice to go on.
			p.cross(hostSide, 0, repeat(1000, 20)...)
		})
	}
}

func TestFlushAtTheEnd(t *testing.T)     { inMemory(t, flushAtTheEnd) }
func TestRDMAFlushAtTheEnd(t *testing.T) { onSoftRoCE(t, flushAtTheEnd) }

// The side that ends a session in an orderly way flushes all pools first: it requests the other
// side to stop using the pools that this side lends, and to take back the pools that this side
// uses. Two requests name all pools and are answered, and the pools are deregistered on both sides
// while the queue pairs are in service.
func flushAtTheEnd(t *testing.T, on fabricOf) {
	for _, ends := range sides {
		t.Run(ends, func(t *testing.T) {
			p := newPair(t, on, messaging.Config{Queues: 2, Pools: []messaging.PoolConfig{
				{ElementSize: 2048, Elements: 16}, {ElementSize: 256, Elements: 8},
			}})
			for q := range 2 {
				for _, from := range sides {
					p.cross(from, q, repeat(1000, 30)...)
				}
			}
			want, peer := map[uint32]bool{}, p.endpoints[other(ends)].conn
			for _, l := range p.lent(ends) {
				want[l.Ref] = true
			}
			for _, l := range p.lent(other(ends)) {
				want[l.Ref|protocol.FlushGiveBack] = true
			}
			if err := p.endpoints[ends].conn.Flush(); err != nil {
				t.Fatal(err)
			}
			requests := of(p.posted(ends), protocol.FuncBufferPoolFlushRequest)
			if replies := of(p.posted(other(ends)), protocol.FuncBufferPoolFlushReply); len(requests) != 2 ||
				len(replies) != len(requests) {
				t.Errorf("%d requests and %d replies for the pools of two sides", len(requests), len(replies))
			}
			for _, e := range requests {
				m, err := protocol.DecodeBufferPoolFlushRequest(e.data)
				if err != nil {
					t.Fatal(err)
				}
				for i := range m.Len() {
					if m.Pool(i)&protocol.FlushGiveBack != m.Pool(0)&protocol.FlushGiveBack || !want[m.Pool(i)] {
						t.Errorf("a request about %#x and %#x; left are %v", m.Pool(0), m.Pool(i), want)
					}
					delete(want, m.Pool(i))
				}
			}
			if len(want) > 0 {
				t.Errorf("no request names %v", want)
			}
			for _, side := range sides {
				// The other side deregisters its pools after its answer, or when its windows
				// are invalid.
				p.poll(func() error {
					for _, l := range p.lent(side) {
						if !slices.ContainsFunc(p.pick(side, deregistered), func(e entry) bool { return e.addr == l.Addr }) {
							return fmt.Errorf("%s: pool %d is registered still", side, l.Ref)
						}
					}
					for _, ch := range p.endpoints[side].conn.Stats().Channels {
						if len(ch.LocalPools)+len(ch.RemotePools) != 0 {
							return fmt.Errorf("%s: pools are left: %+v, %+v", side, ch.LocalPools, ch.RemotePools)
						}
					}
					return nil
				})
			}
			if n := len(p.pick("", qpGone)); n != 0 || peer.Err() != nil {
				t.Errorf("%d queue pairs are gone already; the other side: %v", n, peer.Err())
			}
		})
	}
}

func TestBufferLifeCycle(t *testing.T)     { inMemory(t, bufferLifeCycle) }
func TestRDMABufferLifeCycle(t *testing.T) { onSoftRoCE(t, bufferLifeCycle) }

// The life of a buffer has these steps in order: registered, lent, written, indicated and returned,
// where the last three repeat; flushed; deregistered. The end of the session closes all protection
// domains and so releases everything else.
func bufferLifeCycle(t *testing.T, on fabricOf) {
	p := newPair(t, on, scarce(soonIdle))
	const uses = 3
	counts := func() map[uint32]int {
		n := map[uint32]int{}
		pool, ok := p.extra()
		for _, e := range p.pick(hostSide, sendPosted) {
			if ok && e.send.Op == fabric.OpWriteImm && e.send.RKey == pool.RKey && e.at > pool.at {
				n[e.send.Imm>>16&0xff]++
			}
		}
		return n
	}
	p.flood(0, func() bool {
		for _, n := range counts() {
			if n >= uses {
				return true
			}
		}
		return false
	})
	pool, _ := p.extra()
	mem, _ := p.memory(unitSide, pool)
	var element uint32
	for e, n := range counts() {
		if n >= uses {
			element = e
		}
	}
	var steps []string
	flushed := false
	step := func(s string) {
		if len(steps) == 0 || steps[len(steps)-1] != s {
			steps = append(steps, s)
		}
	}
	poolGone := func() bool {
		return slices.ContainsFunc(p.pick(unitSide, deregistered), func(e entry) bool { return e.rkey == mem.rkey })
	}
	p.until(func() error {
		if !poolGone() {
			return errors.New("the pool is still registered")
		}
		return nil
	})
	for _, e := range p.pick("", registered, deregistered, sendPosted, recvDone) {
		switch m := (message{entry: e}); {
		case e.side == unitSide && e.what == registered && e.rkey == mem.rkey:
			step("registered")
		case e.at == pool.at:
			step("lent")
		case e.side == hostSide && e.what == sendPosted && e.send.Op == fabric.OpWriteImm &&
			e.send.Imm>>16 == pool.Ref<<8|element:
			step("written")
		case e.side == unitSide && e.what == recvDone && e.done.Op == fabric.OpRecvWriteImm &&
			e.done.Imm>>16 == pool.Ref<<8|element:
			step("indicated")
		case e.side == unitSide && e.what == sendPosted && returns(m.data, pool.Ref, element):
			step("returned")
		case e.what == sendPosted && flushes(m.data, pool.Ref):
			// The flush is requested while the last write may be in flight or not yet polled.
			flushed = true
		case e.side == unitSide && e.what == deregistered && e.rkey == mem.rkey:
			step("deregistered")
		}
		if len(steps) > 0 && steps[len(steps)-1] == "deregistered" {
			break
		}
	}
	want := []string{"registered", "lent"}
	for range (len(steps) - 2) / 3 {
		want = append(want, "written", "indicated", "returned")
	}
	want = append(want, "deregistered")
	// The last return may be missing: the flush replaces it.
	short := slices.Delete(slices.Clone(want), len(want)-2, len(want)-1)
	if !flushed || !slices.Equal(steps, want) && !slices.Equal(steps, short) {
		t.Errorf("the life of element %d of pool %d, flushed %t: %v", element, pool.Ref, flushed, steps)
	}
	for _, side := range sides {
		if err := p.endpoints[side].conn.Close(); err != nil {
			t.Error(err)
		}
		open := map[uint32]bool{}
		domains := map[int]bool{}
		for _, e := range p.pick(side, registered, deregistered, closing) {
			switch e.what {
			case registered:
				open[e.rkey] = true
				domains[e.domain] = true
			case deregistered:
				delete(open, e.rkey)
			case closing:
				delete(domains, e.domain)
			default:
			}
		}
		if len(domains) != 0 {
			t.Errorf("%s: %d regions are left in %d open domains", side, len(open), len(domains))
		}
	}
}

// returns reports whether a message returns an element.
func returns(msg []byte, pool, element uint32) bool {
	m, err := protocol.DecodeBufferRecvPoolUpdate(msg)
	if err != nil {
		return false
	}
	for r := m.Returns(); r.Next(); {
		for i := range r.Len() {
			if r.Pool() == pool && uint32(r.Element(i)) == element {
				return true
			}
		}
	}
	return false
}

// flushes reports whether a message requests the flush of a pool.
func flushes(msg []byte, pool uint32) bool {
	m, err := protocol.DecodeBufferPoolFlushRequest(msg)
	if err != nil {
		return false
	}
	for i := range m.Len() {
		if m.Pool(i)&^protocol.FlushGiveBack == pool {
			return true
		}
	}
	return false
}

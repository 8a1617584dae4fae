package conform

import (
	"context"
	"errors"
	"net"

	"github.com/splitnic/splitnic/fabric"
)

func testConnectErrors(r *fixture) {
	q, p := r.newQP(r.a, fabric.RC), r.newQP(r.b, fabric.RC)
	r.a.qp, r.b.qp = q, p
	first, second := q.Address(), q.Address()
	if q.Num() == 0 || q.Num() != first.QPN || first != second {
		r.Fatalf("queue pair %#x has the addresses %+v and %+v", q.Num(), first, second)
	}
	r.receive(q, numbered(0, 1)...) // may be posted before
	r.rejects(q, 0, nil, "posting a send before Connect", write(fabric.OpWrite, 1, r.a, r.b, 8))
	for _, c := range []struct {
		name   string
		change func(*fabric.Address, *fabric.Timing)
	}{
		{"queue pair number zero", func(a *fabric.Address, _ *fabric.Timing) { a.QPN = 0 }},
		{"queue pair number of 25 bits", func(a *fabric.Address, _ *fabric.Timing) { a.QPN |= 1 << 24 }},
		{"packet sequence number of 25 bits", func(a *fabric.Address, _ *fabric.Timing) { a.PSN |= 1 << 24 }},
		{"MTU zero", func(a *fabric.Address, _ *fabric.Timing) { a.MTU = 0 }},
		{"MTU below the least", func(a *fabric.Address, _ *fabric.Timing) { a.MTU = 255 }},
		{"timeout over 31", func(_ *fabric.Address, t *fabric.Timing) { t.Timeout = 32 }},
		{"retry count over 7", func(_ *fabric.Address, t *fabric.Timing) { t.RetryCount = 8 }},
		{"receiver-not-ready retry count over 7", func(_ *fabric.Address, t *fabric.Timing) { t.RNRRetry = 8 }},
		{"receiver-not-ready timer over 31", func(_ *fabric.Address, t *fabric.Timing) { t.MinRNRTimer = 32 }},
	} {
		addr, timing := p.Address(), r.Timing
		c.change(&addr, &timing)
		r.fails(q.Connect(addr, timing), "connecting to "+c.name)
	}
	// The queue pair is still usable after these errors.
	r.check(q.Connect(p.Address(), r.Timing))
	r.check(p.Connect(q.Address(), r.Timing))
	r.fails(q.Connect(p.Address(), r.Timing), "connecting twice")
	r.send(p, write(fabric.OpWriteImm, 1, r.b, r.a, 8))
	r.writeImmOK(q, r.take(r.a.recvCQ, 1)[0], 0, 1, 8)
	r.ok(p, 1, r.take(r.b.sendCQ, 1)...)
	r.works()
}

func testSmallMTU(r *fixture) {
	for _, mtu := range []int{256, 1024} {
		r.a.qp, r.b.qp = r.newQP(r.a, fabric.RC), r.newQP(r.b, fabric.RC)
		a, b := r.a.qp.Address(), r.b.qp.Address()
		a.MTU, b.MTU = mtu, mtu
		r.check(r.a.qp.Connect(b, r.Timing))
		r.check(r.b.qp.Connect(a, r.Timing))
		fill(r.a.mem[:9000], mtu)
		r.deliver(r.a, r.b, 1, write(fabric.OpWriteImm, 2, r.a, r.b, 9000))
		r.same(r.b.mem[:9000], r.a.mem[:9000])
	}
}

func testBadArguments(r *fixture) {
	l := r.a.dev.Limits()
	qp := func(change func(*fabric.QPConfig)) error { return failing(r.newQPWith(r.a, change)) }
	cq := func(depth, vector int) error { return failing(r.a.dom.NewCQ(depth, vector)) }
	for _, c := range []struct {
		name string
		err  error
	}{
		{"a queue pair without transport", qp(func(c *fabric.QPConfig) { c.Transport = 0 })},
		{"a queue pair without send CQ", qp(func(c *fabric.QPConfig) { c.SendCQ = nil })},
		{"a queue pair without receive CQ", qp(func(c *fabric.QPConfig) { c.RecvCQ = nil })},
		{"a queue pair with too many sends", qp(func(c *fabric.QPConfig) { c.MaxSend = l.MaxQPWR + 1 })},
		{"a queue pair with too many receives", qp(func(c *fabric.QPConfig) { c.MaxRecv = l.MaxQPWR + 1 })},
		{"a queue pair with less than no sends", qp(func(c *fabric.QPConfig) { c.MaxSend = -1 })},
		{"a CQ of nothing", cq(0, 0)},
		{"a CQ that is too deep", cq(l.MaxCQE+1, 0)},
		{"a CQ on a vector that is not", cq(16, l.CompVectors)},
		{"a CQ on a negative vector", cq(16, -1)},
		{"a region of nothing", failing(r.a.dom.Register(nil, 0))},
		{"a region of remote without local write", failing(r.a.dom.Register(r.a.mem, fabric.RemoteWrite))},
	} {
		if c.err == nil {
			r.Errorf("made %s", c.name)
		}
	}
	if got := r.a.region.Len(); got != memSize {
		r.Errorf("the region has %d bytes, %d were registered", got, memSize)
	}
	if l.CompVectors < 1 || l.MaxQPWR < 1 || l.MaxCQE < 1 || l.MaxMsg < 1<<16 {
		r.Errorf("limits %+v", l)
	}
}

// Objects can be closed in any order, and more than once, without an error.
func testCloseOrder(r *fixture) {
	for _, order := range [][]int{{0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0}, {2, 0, 5, 1, 4, 3}, {1, 3, 0, 2, 5, 4}} {
		r.connect(fabric.RC)
		r.receive(r.a.qp, numbered(0, 3)...)
		r.send(r.b.qp, write(fabric.OpWriteImm, 1, r.b, r.a, 8))
		r.sent(r.b, 1, 1)
		closers := []func() error{
			r.a.qp.Close, r.a.sendCQ.Close, r.a.recvCQ.Close, r.a.region.Close, r.a.dom.Close, r.a.qp.Close,
		}
		for _, i := range order {
			if err := closers[i](); err != nil {
				r.Fatalf("closing number %d of %v: %v", i, order, err)
			}
		}
		for _, f := range closers {
			r.check(f())
		}
		r.check(r.b.qp.Close())
		r.a = r.newEnd(r.A)
	}
	// Closing a completion queue closes the queue pairs that use it.
	r.connect(fabric.RC)
	r.check(r.a.sendCQ.Close())
	if _, err := r.a.qp.PostRecv(numbered(0, 1)); !errors.Is(err, net.ErrClosed) {
		r.Fatalf("a queue pair outlives its completion queue: %v", err)
	}
	r.check(r.A.Close())
	r.check(r.A.Close())
	if _, err := r.a.dom.NewCQ(16, 0); !errors.Is(err, net.ErrClosed) {
		r.Fatalf("a domain outlives its device: %v", err)
	}
}

func testUseAfterClose(r *fixture) {
	r.connect(fabric.RC)
	var w fabric.Window
	if r.a.dev.Limits().Windows && !r.Traits.NoWindowAlloc {
		w = must(r.a.dom.NewWindow())(r)
	}
	addr := r.b.qp.Address()
	r.check(r.a.dev.Close())
	wcs := make([]fabric.Completion, 1)
	for _, c := range []struct {
		name string
		f    func() error
	}{
		{"Device.NewDomain", func() error { return failing(r.a.dev.NewDomain()) }},
		{"Domain.Register", func() error { return failing(r.a.dom.Register(r.a.mem, 0)) }},
		{"Domain.NewWindow", func() error { return failing(r.a.dom.NewWindow()) }},
		{"Domain.NewCQ", func() error { return failing(r.a.dom.NewCQ(16, 0)) }},
		{"Domain.NewQP", func() error { return failing(r.a.dom.NewQP(r.config(r.a, fabric.RC))) }},
		{"QP.Connect", func() error { return r.a.qp.Connect(addr, r.Timing) }},
		{"QP.PostSend", func() error {
			return failing(r.a.qp.PostSend([]fabric.SendWR{write(fabric.OpWrite, 0, r.a, r.b, 8)}))
		}},
		{"QP.PostRecv", func() error { return failing(r.a.qp.PostRecv(numbered(0, 1))) }},
		{"QP.Fail", r.a.qp.Fail},
		{"QP.Failed", func() error { return failing(r.a.qp.Failed()) }},
		{"QP.Bind", func() error {
			if w == nil {
				return net.ErrClosed
			}
			return failing(r.a.qp.Bind(fabric.BindWR{Window: w, Region: r.a.region, Addr: r.a.region.Addr(), Length: 8,
				Access: fabric.RemoteWrite}))
		}},
		{"QP.Unbind", func() error {
			if w == nil {
				return net.ErrClosed
			}
			return r.a.qp.Unbind(w, 0, 0)
		}},
		{"CQ.Poll", func() error { return failing(r.a.sendCQ.Poll(wcs)) }},
		{"CQ.Arm", func() error { return r.a.sendCQ.Arm(false) }},
		{"CQ.ReadEvent", func() error { return failing(r.a.sendCQ.ReadEvent()) }},
		{"CQ.Wait", func() error { return r.a.sendCQ.Wait(context.Background()) }},
	} {
		if err := c.f(); !errors.Is(err, net.ErrClosed) {
			r.Errorf("%s after Close: %v", c.name, err)
		}
	}
	r.check(errors.Join(r.a.qp.Close(), r.a.sendCQ.Close(), r.a.region.Close(), r.a.dom.Close(), r.a.dev.Close()))
}

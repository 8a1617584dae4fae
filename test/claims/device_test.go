package claims

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// recorder is a device that records its use in a trace, and passes all calls on to the wrapped
// device.
type recorder struct {
	fabric.Device
	trace *trace
	side  string
	last  atomic.Pointer[domain] // the domain that was made last
}

var _ fabric.Device = (*recorder)(nil)

func (d *recorder) entry(w what) entry { return entry{side: d.side, device: d.Name(), what: w} }

func (d *recorder) NewDomain() (fabric.Domain, error) {
	dom, err := d.Device.NewDomain()
	if err != nil {
		return nil, err
	}
	out := &domain{Domain: dom, dev: d, number: d.trace.number()}
	d.last.Store(out)
	return out, nil
}

type domain struct {
	fabric.Domain
	dev    *recorder
	number int

	mu   sync.Mutex
	mems []*region   // the regions that are registered at present
	cqs  []*tracedCQ // all, in the order in which they were made
}

func (d *domain) entry(w what) entry {
	e := d.dev.entry(w)
	e.domain = d.number
	return e
}

func (d *domain) Register(mem []byte, access fabric.Access) (fabric.Region, error) {
	r, err := d.Domain.Register(mem, access)
	if err != nil {
		return nil, err
	}
	out := &region{Region: r, dom: d, mem: mem, access: access &^ fabric.Relaxed}
	d.mu.Lock()
	d.mems = append(d.mems, out)
	d.mu.Unlock()
	d.dev.trace.add(out.entry(registered))
	return out, nil
}

// copy returns a copy of registered memory, or nil if addr and length are not within one region.
func (d *domain) copy(addr uint64, length uint32) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.mems {
		if off := addr - r.Addr(); addr >= r.Addr() && off+uint64(length) <= uint64(len(r.mem)) {
			return slices.Clone(r.mem[off:][:length])
		}
	}
	return nil
}

func (d *domain) NewCQ(depth, vector int) (fabric.CQ, error) {
	c, err := d.Domain.NewCQ(depth, vector)
	if err != nil {
		return nil, err
	}
	out := &tracedCQ{CQ: c, dom: d, number: d.dev.trace.number()}
	e := out.entry(cqMade)
	e.vector = vector
	d.dev.trace.add(e)
	d.mu.Lock()
	d.cqs = append(d.cqs, out)
	d.mu.Unlock()
	return out, nil
}

func (d *domain) NewQP(cfg fabric.QPConfig) (fabric.QP, error) {
	send, recv := cfg.SendCQ.(*tracedCQ), cfg.RecvCQ.(*tracedCQ)
	inner := cfg
	inner.SendCQ, inner.RecvCQ = send.CQ, recv.CQ
	q, err := d.Domain.NewQP(inner)
	if err != nil {
		return nil, err
	}
	out := &qp{QP: q, dom: d, recvs: make(map[uint64][]fabric.RecvWR)}
	recv.mu.Lock()
	recv.qps = append(recv.qps, out)
	recv.mu.Unlock()
	e := out.entry(qpMade)
	e.config, e.cq, e.sendCQ = cfg, recv.number, send.number
	d.dev.trace.add(e)
	return out, nil
}

func (d *domain) Close() error {
	d.dev.trace.add(d.entry(closing))
	return d.Domain.Close()
}

type region struct {
	fabric.Region
	dom    *domain
	mem    []byte
	access fabric.Access // without fabric.Relaxed, which is not a right
}

func (r *region) entry(w what) entry {
	e := r.dom.entry(w)
	e.addr, e.length, e.rkey, e.access = r.Addr(), r.Len(), r.RKey(), r.access
	return e
}

func (r *region) Close() error {
	r.dom.dev.trace.add(r.entry(deregistered))
	err := r.Region.Close()
	if err == nil {
		r.dom.mu.Lock()
		r.dom.mems = slices.DeleteFunc(r.dom.mems, func(m *region) bool { return m == r })
		r.dom.mu.Unlock()
	}
	return err
}

type tracedCQ struct {
	fabric.CQ
	dom    *domain
	number int

	mu     sync.Mutex
	qps    []*qp   // the queue pairs with this receive queue
	missed *missed // what happens when the queue is armed the next time, if not nil

	late  []fabric.Completion // arrived before the queue was armed, and not returned by Poll yet
	taken func()              // called when Poll returns the first of late
}

// missed is about a completion that arrives between the last poll of a queue and its arming. It
// raises no event, because events are only for completions that arrive afterwards.
type missed struct {
	ctx    context.Context
	arrive func() // has something completed, before the queue is armed
	wake   func() // has something else completed, when it is armed: it wakes whoever has gone to sleep
	taken  func() // is called when the completion is polled
}

func (c *tracedCQ) entry(w what) entry {
	e := c.dom.entry(w)
	e.cq = c.number
	return e
}

func (c *tracedCQ) Poll(out []fabric.Completion) (int, error) {
	c.mu.Lock()
	n := copy(out, c.late)
	c.late = c.late[n:]
	var taken func()
	if n > 0 {
		taken, c.taken = c.taken, nil
	}
	c.mu.Unlock()
	if taken != nil {
		taken()
	}
	var err error
	if n == 0 {
		n, err = c.CQ.Poll(out)
	}
	if n == 0 && err == nil {
		c.dom.dev.trace.add(c.entry(polledEmpty))
	}
	for _, done := range out[:n] {
		e := c.entry(sendDone)
		e.qpn, e.done = done.QPN, done
		c.mu.Lock()
		for _, q := range c.qps {
			if q.Num() == done.QPN {
				if wr, ok := q.take(&done); ok {
					e.what, e.recv = recvDone, wr
					if done.Op == fabric.OpRecv {
						e.data = c.dom.copy(wr.Addr, done.Len)
					}
				}
			}
		}
		c.mu.Unlock()
		c.dom.dev.trace.add(e)
	}
	return n, err
}

func (c *tracedCQ) Arm(solicitedOnly bool) error {
	e := c.entry(armed)
	e.only = solicitedOnly
	c.dom.dev.trace.add(e)
	c.mu.Lock()
	m := c.missed
	c.missed = nil
	c.mu.Unlock()
	if m == nil {
		return c.CQ.Arm(solicitedOnly)
	}
	m.arrive()
	for ctx := m.ctx; ; runtime.Gosched() {
		var some [16]fabric.Completion
		n, err := c.CQ.Poll(some[:])
		if err != nil {
			return err
		}
		if n > 0 {
			c.mu.Lock()
			c.late, c.taken = slices.Clone(some[:n]), m.taken
			c.mu.Unlock()
			break
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	err := c.CQ.Arm(solicitedOnly)
	m.wake()
	return err
}

// miss makes the next Arm call have a completion missed.
func (c *tracedCQ) miss(m *missed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missed = m
}

func (c *tracedCQ) ReadEvent() (bool, error) {
	ok, err := c.CQ.ReadEvent()
	if ok {
		c.dom.dev.trace.add(c.entry(eventRead))
	}
	return ok, err
}

type qp struct {
	fabric.QP
	dom *domain

	mu    sync.Mutex
	recvs map[uint64][]fabric.RecvWR // receives that are posted and not completed, by identifier
}

func (q *qp) entry(w what) entry {
	e := q.dom.entry(w)
	e.qpn = q.Num()
	return e
}

// take returns and removes the receive of a completion. The opcode of a failed completion is not
// valid, but sends and receives have different identifiers here.
func (q *qp) take(done *fabric.Completion) (fabric.RecvWR, bool) {
	if done.Status == fabric.StatusSuccess && done.Op < fabric.OpRecv {
		return fabric.RecvWR{}, false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	wrs := q.recvs[done.ID]
	if len(wrs) == 0 {
		return fabric.RecvWR{}, false
	}
	q.recvs[done.ID] = wrs[1:]
	return wrs[0], true
}

func (q *qp) Connect(remote fabric.Address, t fabric.Timing) error {
	e := q.entry(connected)
	e.remote = remote
	q.dom.dev.trace.add(e)
	return q.QP.Connect(remote, t)
}

func (q *qp) PostSend(wrs []fabric.SendWR) (int, error) {
	batch := q.dom.dev.trace.number()
	more := false // the previous piece had fabric.More: the request continues
	var e entry
	for _, wr := range wrs {
		if !more {
			e = q.entry(sendPosted)
			e.send, e.batch = wr, batch
		} else {
			e.send.Len += wr.Len
		}
		e.data = append(e.data, q.dom.copy(wr.Addr, wr.Len)...)
		if more = wr.Flags&fabric.More != 0; !more {
			e.send.Flags &^= fabric.More
			q.dom.dev.trace.add(e)
		}
	}
	return q.QP.PostSend(wrs)
}

func (q *qp) PostRecv(wrs []fabric.RecvWR) (int, error) {
	batch := q.dom.dev.trace.number()
	q.mu.Lock()
	for _, wr := range wrs {
		q.recvs[wr.ID] = append(q.recvs[wr.ID], wr)
	}
	q.mu.Unlock()
	for _, wr := range wrs {
		e := q.entry(recvPosted)
		e.recv, e.batch = wr, batch
		q.dom.dev.trace.add(e)
	}
	return q.QP.PostRecv(wrs)
}

func (q *qp) Bind(b fabric.BindWR) (uint32, error) {
	e := q.entry(bound)
	e.when = time.Now()
	b.Region = b.Region.(*region).Region
	key, err := q.QP.Bind(b)
	if err == nil {
		e.rkey, e.addr, e.length, e.access = key, b.Addr, b.Length, b.Access
		q.dom.dev.trace.add(e)
	}
	return key, err
}

// BindSend records one post of two requests, whose entries have the same batch. The entries are
// recorded before the call, because the peer may have the key before the call returns.
func (q *qp) BindSend(b fabric.BindWR, send uint64, f fabric.Flags) (uint32, error) {
	batch, key := q.dom.dev.trace.number(), protocol.NextKey(b.Window.RKey())
	e := q.entry(bound)
	e.rkey, e.addr, e.length, e.access, e.batch = key, b.Addr, b.Length, b.Access, batch
	q.dom.dev.trace.add(e)
	e = q.entry(sendPosted)
	e.send, e.batch = fabric.SendWR{ID: send, Op: fabric.OpSendImm, Flags: f, Imm: key}, batch
	q.dom.dev.trace.add(e)
	b.Region = b.Region.(*region).Region
	return q.QP.BindSend(b, send, f)
}

func (q *qp) Unbind(w fabric.Window, id uint64, f fabric.Flags) error {
	e := q.entry(unbound)
	e.rkey = w.RKey()
	q.dom.dev.trace.add(e)
	return q.QP.Unbind(w, id, f)
}

func (q *qp) Fail() error {
	q.dom.dev.trace.add(q.entry(qpGone))
	return q.QP.Fail()
}

func (q *qp) Close() error {
	q.dom.dev.trace.add(q.entry(qpGone))
	return q.QP.Close()
}

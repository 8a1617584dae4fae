package conform

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/splitnic/splitnic/fabric"
)

const (
	memSize   = 256 << 10
	depth     = 64 // work requests of each kind per queue pair
	inlineMax = 64
)

// fixture is a pair of devices with a domain, a region and two completion queues at each end.
// Its methods are the steps of the properties.
type fixture struct {
	T
	Pair
	a, b *end

	pieces int // MaxSGE of the queue pairs, supported by both devices
}

// end is one side of a fixture. qp is set by connect.
type end struct {
	dev    fabric.Device
	dom    fabric.Domain
	sendCQ fabric.CQ
	recvCQ fabric.CQ
	mem    []byte
	region fabric.Region
	qp     fabric.QP
}

func newFixture(t T, p Pair) *fixture {
	r := &fixture{T: t, Pair: p, pieces: min(p.A.Limits().MaxSGE, p.B.Limits().MaxSGE)}
	r.a, r.b = r.newEnd(p.A), r.newEnd(p.B)
	return r
}

func (r *fixture) newEnd(d fabric.Device) *end {
	r.Helper()
	e := &end{dev: d, mem: Alloc(r, memSize)}
	e.dom = must(d.NewDomain())(r)
	// Relaxed, because all properties of memory have to hold with relaxed ordering, too.
	e.region = must(e.dom.Register(e.mem, fabric.LocalWrite|fabric.RemoteWrite|fabric.WindowBind|fabric.Relaxed))(r)
	e.sendCQ = must(e.dom.NewCQ(8*depth, 0))(r)
	e.recvCQ = must(e.dom.NewCQ(8*depth, 0))(r)
	return e
}

func (r *fixture) ends() []*end { return []*end{r.a, r.b} }

// newQP creates a queue pair that uses e's completion queues.
func (r *fixture) newQP(e *end, tr fabric.Transport) fabric.QP {
	r.Helper()
	return must(e.dom.NewQP(r.config(e, tr)))(r)
}

// newQPWith creates a queue pair of a reliable connection after a change of its configuration.
func (r *fixture) newQPWith(e *end, change func(*fabric.QPConfig)) (fabric.QP, error) {
	cfg := r.config(e, fabric.RC)
	change(&cfg)
	return e.dom.NewQP(cfg)
}

func (r *fixture) config(e *end, tr fabric.Transport) fabric.QPConfig {
	return fabric.QPConfig{
		Transport: tr, SendCQ: e.sendCQ, RecvCQ: e.recvCQ,
		MaxSend: depth, MaxRecv: depth, MaxInline: inlineMax, MaxSGE: r.pieces,
	}
}

// connect creates and connects a new queue pair for each end.
func (r *fixture) connect(tr fabric.Transport) { r.Helper(); r.connectWith(tr, r.Timing) }

func (r *fixture) connectWith(tr fabric.Transport, t fabric.Timing) {
	r.Helper()
	if tr == fabric.UC && r.Traits.NoUC {
		r.fails(failing(r.a.dom.NewQP(r.config(r.a, tr))), "a queue pair of a transport that the device does not have")
		r.Skipf("this device has no unreliable connections")
	}
	r.a.qp, r.b.qp = r.newQP(r.a, tr), r.newQP(r.b, tr)
	r.link(t)
}

// link connects the queue pairs.
func (r *fixture) link(t fabric.Timing) {
	r.Helper()
	r.check(r.a.qp.Connect(r.b.qp.Address(), t))
	r.check(r.b.qp.Connect(r.a.qp.Address(), t))
}

// hangUp closes the queue pairs.
func (r *fixture) hangUp() {
	r.Helper()
	r.check(r.a.qp.Close())
	r.check(r.b.qp.Close())
}

// inlines skips the test if the queue pairs carry less inline data than it sends.
func (r *fixture) inlines() {
	r.Helper()
	if n := r.a.qp.MaxInline(); n < inlineMax {
		r.Skipf("the device grants %d bytes of inline data", n)
	}
}

// reconnect replaces the queue pairs, and discards their pending completions.
func (r *fixture) reconnect(tr fabric.Transport) {
	r.Helper()
	r.hangUp()
	for _, e := range r.ends() { // some devices keep the completions of a closed queue pair
		for _, cq := range []fabric.CQ{e.sendCQ, e.recvCQ} {
			for len(r.poll(cq)) != 0 {
			}
		}
	}
	r.connect(tr)
}

func (r *fixture) check(err error) {
	r.Helper()
	if err != nil {
		r.Fatalf("%v", err)
	}
}

// fails checks that a call has failed.
func (r *fixture) fails(err error, what string) {
	r.Helper()
	if err == nil {
		r.Fatalf("%s: it has not failed", what)
	}
}

func must[V any](v V, err error) func(T) V {
	return func(t T) V {
		t.Helper()
		if err != nil {
			t.Fatalf("%v", err)
		}
		return v
	}
}

// failing returns the error of a call with another result.
func failing[V any](_ V, err error) error { return err }

func (r *fixture) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), r.Patience)
}

func (r *fixture) send(q fabric.QP, wrs ...fabric.SendWR) {
	r.Helper()
	if n, err := q.PostSend(wrs); err != nil || n != len(wrs) {
		r.Fatalf("posted %d of %d sends: %v", n, len(wrs), err)
	}
}

// rejects checks that a post of requests fails after n records. want is the error, nil for any.
func (r *fixture) rejects(q fabric.QP, n int, want error, what string, wrs ...fabric.SendWR) {
	r.Helper()
	if got, err := q.PostSend(wrs); got != n || err == nil || want != nil && !errors.Is(err, want) {
		r.Fatalf("%s: %d of %d records posted, %v; want %d", what, got, len(wrs), err, n)
	}
}

// sendFailing posts requests of which one fails, and returns the number of those that were posted. A
// device that refuses posts on a queue pair that has failed may do so within the call.
func (r *fixture) sendFailing(q fabric.QP, wrs ...fabric.SendWR) int {
	r.Helper()
	n, err := q.PostSend(wrs)
	strict := r.Traits.StrictPosts || r.anyRefusal
	if (err != nil || n != len(wrs)) && (err == nil || n == 0 || !strict) {
		r.Fatalf("posted %d of %d sends: %v", n, len(wrs), err)
	}
	return n
}

func (r *fixture) receive(q fabric.QP, wrs ...fabric.RecvWR) {
	r.Helper()
	if n, err := q.PostRecv(wrs); err != nil || n != len(wrs) {
		r.Fatalf("posted %d of %d receives: %v", n, len(wrs), err)
	}
}

// numbered returns n receives without memory, with IDs from first on.
func numbered(first uint64, n int) []fabric.RecvWR {
	out := make([]fabric.RecvWR, n)
	for i := range out {
		out[i].ID = first + uint64(i)
	}
	return out
}

// place is memory with a key, of which a message makes use.
type place struct {
	name string
	addr uint64
	key  uint32
}

// into returns a receive with n bytes of e's memory from an offset on.
func into(id uint64, e *end, offset, n int) fabric.RecvWR {
	return fabric.RecvWR{ID: id, Addr: e.region.Addr() + uint64(offset), Len: uint32(n), LKey: e.region.LKey()}
}

// write returns a signaled write of the first n bytes of from's memory to the start of to's memory, or
// a SEND of them.
func write(op fabric.Opcode, id uint64, from, to *end, n int) fabric.SendWR {
	return fabric.SendWR{
		ID: id, Op: op, Flags: fabric.Signaled, Addr: from.region.Addr(), LKey: from.region.LKey(), Len: uint32(n),
		RemoteAddr: to.region.Addr(), RKey: to.region.RKey(), Imm: uint32(id),
	}
}

// shifted returns a request whose memory begins by so many bytes later at each end.
func shifted(wr fabric.SendWR, local, remote int) fabric.SendWR {
	wr.Addr += uint64(local)
	wr.RemoteAddr += uint64(remote)
	return wr
}

func (r *fixture) poll(cq fabric.CQ) []fabric.Completion {
	r.Helper()
	var buf [16]fabric.Completion
	n, err := cq.Poll(buf[:])
	r.check(err)
	return append([]fabric.Completion(nil), buf[:n]...)
}

// take waits for n completions according to the contract: it polls until the queue is empty, arms it,
// polls again, and only then sleeps. Where flushes are silent it never sleeps.
func (r *fixture) take(cq fabric.CQ, n int) []fabric.Completion {
	r.Helper()
	if r.Traits.SilentFlushes {
		return r.spin(cq, n)
	}
	ctx, cancel := r.context()
	defer cancel()
	out := make([]fabric.Completion, n)
	got, err := reap(ctx, cq, out)
	if err != nil {
		r.Fatalf("after %d of %d completions %+v: %v", got, n, out[:got], err)
	}
	return out
}

// reap waits until out is full, and returns how many completions it has.
func reap(ctx context.Context, cq fabric.CQ, out []fabric.Completion) (got int, err error) {
	for n := 0; got < len(out) && err == nil; got += n {
		n, err = fabric.Reap(ctx, cq, out[got:])
	}
	return got, err
}

// spin waits for n completions without arming.
func (r *fixture) spin(cq fabric.CQ, n int) []fabric.Completion {
	r.Helper()
	var out []fabric.Completion
	for end := time.Now().Add(r.Patience); len(out) < n; runtime.Gosched() {
		buf := make([]fabric.Completion, n-len(out))
		k, err := cq.Poll(buf)
		r.check(err)
		out = append(out, buf[:k]...)
		if k == 0 && time.Now().After(end) {
			r.Fatalf("%d of %d completions: %+v", len(out), n, out)
		}
	}
	return out
}

// none checks that the queue is empty.
func (r *fixture) none(cq fabric.CQ) {
	r.Helper()
	if c := r.poll(cq); len(c) != 0 {
		r.Fatalf("a completion that should not be: %+v", c)
	}
}

// ok checks that the completions are successful, of q, and have IDs from first on.
func (r *fixture) ok(q fabric.QP, first uint64, cs ...fabric.Completion) {
	r.Helper()
	r.all(q, fabric.StatusSuccess, first, cs...)
}

// sent takes n completions of sends of e, and checks them as ok does.
func (r *fixture) sent(e *end, first uint64, n int) []fabric.Completion {
	r.Helper()
	cs := r.take(e.sendCQ, n)
	r.ok(e.qp, first, cs...)
	return cs
}

// received takes n completions of receives of e, and checks them as ok does.
func (r *fixture) received(e *end, first uint64, n int) []fabric.Completion {
	r.Helper()
	cs := r.take(e.recvCQ, n)
	r.ok(e.qp, first, cs...)
	return cs
}

// flushed checks that the completions are of requests that were flushed.
func (r *fixture) flushed(q fabric.QP, first uint64, cs ...fabric.Completion) {
	r.Helper()
	r.all(q, fabric.StatusWRFlushErr, first, cs...)
}

// all checks status, queue pair and ID of completions.
func (r *fixture) all(q fabric.QP, s fabric.Status, first uint64, cs ...fabric.Completion) {
	r.Helper()
	for i := range cs {
		if c := &cs[i]; c.Status != s || c.QPN != q.Num() || c.ID != first+uint64(i) {
			r.Fatalf("completion %d of %d: status %q, queue pair %#x, ID %d; want %q, %#x, %d",
				i, len(cs), c.Status, c.QPN, c.ID, s, q.Num(), first+uint64(i))
		}
	}
}

// failed is all for completions of what has failed. Where the traits are not known, any status but
// success will do.
func (r *fixture) failed(q fabric.QP, s fabric.Status, first uint64, cs ...fabric.Completion) {
	r.Helper()
	for i, c := range cs {
		if r.anyRefusal && c.Status != fabric.StatusSuccess {
			s = c.Status
		}
		r.all(q, s, first+uint64(i), c)
	}
}

// writeImmOK checks the completion of a receive by a write of n bytes.
func (r *fixture) writeImmOK(q fabric.QP, c fabric.Completion, id uint64, imm uint32, n int) {
	r.Helper()
	r.arrived(q, c, fabric.Completion{
		ID: id, Op: fabric.OpRecvWriteImm, Flags: fabric.WithImm, Imm: imm, Len: uint32(n),
	})
}

// arrived checks what a successful completion of a receive says about the message.
func (r *fixture) arrived(q fabric.QP, c, want fabric.Completion) {
	r.Helper()
	r.ok(q, want.ID, c)
	if c.Op != want.Op || c.Flags != want.Flags || c.Len != want.Len ||
		c.Flags&fabric.WithImm != 0 && c.Imm != want.Imm || c.Flags&fabric.WithInv != 0 && c.InvKey != want.InvKey {
		r.Fatalf("receive completion %+v, want %+v", c, want)
	}
}

// sentAs takes one completion of a send of e, which has to be successful, of request id and with op.
func (r *fixture) sentAs(e *end, id uint64, op fabric.Opcode) {
	r.Helper()
	if c := r.sent(e, id, 1)[0]; c.Op != op {
		r.Fatalf("send completion %+v, want opcode %v", c, op)
	}
}

// deliver posts a receive, and sends the records of one write with immediate data to it. It checks the
// completions of both ends.
func (r *fixture) deliver(from, to *end, id uint64, wrs ...fabric.SendWR) {
	r.Helper()
	r.receive(to.qp, fabric.RecvWR{ID: id})
	r.send(from.qp, wrs...)
	size := 0
	for i := range wrs {
		size += int(wrs[i].Len)
	}
	r.writeImmOK(to.qp, r.take(to.recvCQ, 1)[0], id, wrs[0].Imm, size)
	r.sent(from, wrs[0].ID, 1)
}

func (r *fixture) same(got, want []byte) {
	r.Helper()
	if !bytes.Equal(got, want) {
		i := 0
		for i < len(want) && got[i] == want[i] {
			i++
		}
		r.Fatalf("%d bytes differ from what was sent, first at %d", len(want), i)
	}
}

// untouched checks that p is all zero.
func (r *fixture) untouched(p []byte) {
	r.Helper()
	if bytes.Equal(p, make([]byte, len(p))) {
		return
	}
	i := slices.IndexFunc(p, func(b byte) bool { return b != 0 })
	r.Fatalf("byte %d was overwritten with %#x", i, p[i])
}

// works sends one message in each direction.
func (r *fixture) works() {
	r.Helper()
	for _, d := range [][2]*end{{r.a, r.b}, {r.b, r.a}} {
		r.deliver(d[0], d[1], 901, write(fabric.OpWriteImm, 902, d[0], d[1], 8))
	}
}

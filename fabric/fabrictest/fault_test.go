package fabrictest_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/conform"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/testenv"
)

// link is a connected pair of queue pairs on a network of its own.
type link struct {
	*testing.T
	net *fabrictest.Network
	a   *side
	b   *side
}

type side struct {
	dev    fabric.Device
	dom    fabric.Domain
	send   fabric.CQ
	recv   fabric.CQ
	qp     fabric.QP
	region fabric.Region
	mem    []byte
}

func newLink(t *testing.T, tr fabric.Transport, timing fabric.Timing, opts ...fabrictest.Option) *link {
	l := &link{T: t, net: fabrictest.New(opts...)}
	fabrictest.NoLeaks(t, l.net)
	l.a, l.b = l.side("a", tr), l.side("b", tr)
	check(t, l.a.qp.Connect(l.b.qp.Address(), timing))
	check(t, l.b.qp.Connect(l.a.qp.Address(), timing))
	return l
}

func (l *link) side(name string, tr fabric.Transport) *side {
	s := &side{dev: l.net.Device(name), mem: conform.Alloc(l, 65536)}
	l.Cleanup(func() { check(l, s.dev.Close()) })
	s.dom = must(s.dev.NewDomain())(l)
	s.region = must(s.dom.Register(s.mem, fabric.LocalWrite|fabric.RemoteWrite))(l)
	s.send, s.recv = must(s.dom.NewCQ(32, 0))(l), must(s.dom.NewCQ(32, 1))(l)
	s.qp = must(s.dom.NewQP(fabric.QPConfig{Transport: tr, SendCQ: s.send, RecvCQ: s.recv, MaxSend: 16, MaxRecv: 16,
		MaxInline: 64}))(l)
	return s
}

// post posts a signaled RDMA write with immediate of n bytes from a to b.
func (l *link) post(id uint64, n int, f fabric.Flags) {
	l.Helper()
	_, err := l.a.qp.PostSend([]fabric.SendWR{{
		ID: id, Op: fabric.OpWriteImm, Flags: fabric.Signaled | f, Imm: uint32(id), Addr: l.a.region.Addr(),
		LKey: l.a.region.LKey(),
		Len:  uint32(n), RemoteAddr: l.b.region.Addr(), RKey: l.b.region.RKey(),
	}})
	check(l, err)
}

func (l *link) receives(n int) {
	l.Helper()
	_, err := l.b.qp.PostRecv(make([]fabric.RecvWR, n))
	check(l, err)
}

// status waits for a completion, and compares the completion's request and status with id and want.
func (l *link) status(cq fabric.CQ, id uint64, want fabric.Status) {
	l.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	var c [1]fabric.Completion
	for {
		check(l, cq.Arm(false))
		if n, err := cq.Poll(c[:]); err != nil {
			l.Fatal(err)
		} else if n != 0 {
			break
		}
		check(l, cq.Wait(ctx))
	}
	if c[0].Status != want || c[0].ID != id {
		l.Fatalf("request %d completed with %q, want %d and %q", c[0].ID, c[0].Status, id, want)
	}
}

func (l *link) nothing(cq fabric.CQ) {
	l.Helper()
	var c [1]fabric.Completion
	if n, err := cq.Poll(c[:]); n != 0 || err != nil {
		l.Fatalf("polled %d completions, %v: %+v", n, err, c[0])
	}
}

func TestCutIsFoundInTime(t *testing.T) {
	timing := fabric.Timing{Timeout: 14, RetryCount: 1}
	l := newLink(t, fabric.RC, timing)
	l.receives(1)
	l.net.Cut("b")
	start := time.Now()
	l.post(1, 8, 0)
	l.status(l.a.send, 1, fabric.StatusRetryExcErr)
	least := time.Duration(timing.RetryCount+1) * (4096 * time.Nanosecond << timing.Timeout) / 10
	if d := time.Since(start); d < least {
		t.Errorf("reported after %v, earlier than %v", d, least)
	}
	if c := l.net.Counters("a"); c.Retries != 2 || c.WriteImms != 0 || c.Errors != 1 {
		t.Errorf("counters %+v", c)
	}
	l.nothing(l.b.recv)
}

func TestCutAndHeal(t *testing.T) {
	l := newLink(t, fabric.RC, fabric.Timing{}, fabrictest.WithTimeScale(1000))
	l.receives(2)
	l.net.Cut("a")
	l.post(1, 8, 0)
	l.post(2, 8, fabric.Inline)
	l.nothing(l.a.send)
	l.nothing(l.b.recv)
	l.net.Heal("a")
	for id := range uint64(2) {
		l.status(l.a.send, id+1, fabric.StatusSuccess)
		l.status(l.b.recv, 0, fabric.StatusSuccess)
	}
}

// TestCutDuringReceiverNotReady cuts the network while a sender waits for a receive. It expects the
// request to fail, whatever the number of retries is.
func TestCutDuringReceiverNotReady(t *testing.T) {
	l := newLink(t, fabric.RC, fabric.Timing{Timeout: 1, RetryCount: 1})
	l.post(1, 8, 0)
	for l.net.Counters("a").RNR == 0 {
		l.nothing(l.a.send)
	}
	l.net.Cut("b")
	l.status(l.a.send, 1, fabric.StatusRetryExcErr)
}

func TestCutLosesUnreliable(t *testing.T) {
	l := newLink(t, fabric.UC, fabric.Timing{})
	l.receives(1)
	l.net.Cut("b")
	l.post(1, 8, 0)
	l.status(l.a.send, 1, fabric.StatusSuccess)
	l.net.Heal("b")
	l.net.DropUC("a", 2)
	l.post(2, 8, 0)
	l.post(3, 8, 0)
	l.post(4, 8, 0)
	for id := range uint64(3) {
		l.status(l.a.send, id+2, fabric.StatusSuccess)
	}
	l.status(l.b.recv, 0, fabric.StatusSuccess)
	l.nothing(l.b.recv)
	if c := l.net.Counters("a"); c.Drops != 3 || c.WriteImms != 1 {
		t.Errorf("counters %+v", c)
	}
}

// TestStallAndResume expects no delivery while a device is stalled. Inline data is read at the post,
// other data when it is sent.
func TestStallAndResume(t *testing.T) {
	l := newLink(t, fabric.RC, fabric.Timing{})
	l.receives(2)
	l.net.Stall("b")
	l.a.mem[0] = 1
	l.post(1, 1, fabric.Inline)
	l.a.mem[0] = 2
	l.nothing(l.a.send)
	l.nothing(l.b.recv)
	l.net.Resume("b")
	l.status(l.a.send, 1, fabric.StatusSuccess)
	if l.b.mem[0] != 1 {
		t.Errorf("inline data changed to %d after it was posted", l.b.mem[0])
	}
	l.net.Stall("a")
	l.post(2, 1, 0)
	l.a.mem[0] = 3
	l.net.Resume("a")
	l.status(l.a.send, 2, fabric.StatusSuccess)
	if l.b.mem[0] != 3 {
		t.Errorf("a buffer in flight was copied when posted: %d arrived", l.b.mem[0])
	}
}

func TestDelayKeepsOrder(t *testing.T) {
	const d = 3 * time.Millisecond
	l := newLink(t, fabric.RC, fabric.Timing{})
	l.receives(3)
	l.net.Delay("b", d)
	start := time.Now()
	l.post(1, 8, 0)
	l.net.Delay("b", 0)
	l.post(2, 8, 0)
	l.status(l.a.send, 1, fabric.StatusSuccess)
	if took := time.Since(start); took < d {
		t.Errorf("arrived after %v, the delay is %v", took, d)
	}
	l.status(l.a.send, 2, fabric.StatusSuccess)
	l.post(3, 8, 0)
	l.status(l.a.send, 3, fabric.StatusSuccess)
}

func TestKill(t *testing.T) {
	l := newLink(t, fabric.RC, fabric.Timing{RetryCount: 1})
	l.receives(4)
	l.net.Kill("b")
	if _, err := l.b.qp.PostRecv(make([]fabric.RecvWR, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("posting on a killed device: %v", err)
	}
	l.post(1, 8, 0)
	l.status(l.a.send, 1, fabric.StatusRetryExcErr)
	again := l.net.Device("b")
	if _, err := again.NewDomain(); err != nil {
		t.Errorf("opening the device again: %v", err)
	}
	if live := l.net.Live(); live.Devices != 2 || live.QPs != 1 || live.Regions != 1 || live.CQs != 2 {
		t.Errorf("live: %+v", live)
	}
	check(t, again.Close())
}

func TestOnSend(t *testing.T) {
	l := newLink(t, fabric.RC, fabric.Timing{})
	l.receives(4)
	l.net.OnSend("a", func(qpn uint32, wr fabric.SendWR) fabric.Status {
		if qpn == l.a.qp.Num() && wr.ID == 2 {
			return fabric.StatusLocQPOpErr
		}
		return fabric.StatusSuccess
	})
	for id := range uint64(3) {
		l.post(id+1, 8, 0)
	}
	l.net.OnSend("a", nil)
	l.status(l.a.send, 1, fabric.StatusSuccess)
	l.status(l.a.send, 2, fabric.StatusLocQPOpErr)
	l.status(l.a.send, 3, fabric.StatusWRFlushErr)
}

// TestUnsignalledNeverFreesSlots expects a slot of the send queue to become free only when the
// completion of its request or of a later one has been polled. So a queue without signaled requests
// becomes full.
func TestUnsignalledNeverFreesSlots(t *testing.T) {
	l := newLink(t, fabric.RC, fabric.Timing{})
	wr := fabric.SendWR{Op: fabric.OpWrite}
	for i := range 16 {
		if i == 9 {
			wr.Flags = fabric.Signaled
		}
		_, err := l.a.qp.PostSend([]fabric.SendWR{wr})
		check(t, err)
		wr.Flags = 0
	}
	if _, err := l.a.qp.PostSend([]fabric.SendWR{wr}); !errors.Is(err, fabric.ErrQueueFull) {
		t.Fatalf("post 17 to a queue of 16: %v", err)
	}
	l.status(l.a.send, 0, fabric.StatusSuccess) // request 10
	n, err := l.a.qp.PostSend(make17(wr))
	if n != 10 || !errors.Is(err, fabric.ErrQueueFull) {
		t.Fatalf("%d posted after request 10 of 16 was reaped, %v", n, err)
	}
}

func make17(wr fabric.SendWR) []fabric.SendWR {
	wrs := make([]fabric.SendWR, 17)
	for i := range wrs {
		wrs[i] = wr
	}
	return wrs
}

// TestReceiveSlotsAreFreedByPolling expects the slot of a receive to become free when the
// completion of the receive has been polled, not before.
func TestReceiveSlotsAreFreedByPolling(t *testing.T) {
	l := newLink(t, fabric.RC, fabric.Timing{})
	l.receives(16)
	l.post(1, 8, 0)
	if _, err := l.b.qp.PostRecv(make([]fabric.RecvWR, 1)); !errors.Is(err, fabric.ErrQueueFull) {
		t.Fatalf("receive 17 before anything was polled: %v", err)
	}
	l.status(l.b.recv, 0, fabric.StatusSuccess)
	l.receives(1)
}

// TestCQOverflow overflows a completion queue that is too small for its queue pair. It expects an
// error from the completion queue, and the failure of that queue pair only.
func TestCQOverflow(t *testing.T) {
	l := newLink(t, fabric.RC, fabric.Timing{RetryCount: 1})
	small := must(l.b.dom.NewCQ(2, 0))(t)
	q := must(l.b.dom.NewQP(fabric.QPConfig{Transport: fabric.RC, SendCQ: l.b.send, RecvCQ: small, MaxSend: 4,
		MaxRecv: 8}))(t)
	p := must(l.a.dom.NewQP(fabric.QPConfig{Transport: fabric.RC, SendCQ: l.a.send, RecvCQ: l.a.recv, MaxSend: 8,
		MaxRecv: 4}))(t)
	check(t, q.Connect(p.Address(), fabric.Timing{}))
	check(t, p.Connect(q.Address(), fabric.Timing{RetryCount: 1}))
	_, err := q.PostRecv(make([]fabric.RecvWR, 8))
	check(t, err)
	for range 3 {
		_, err := p.PostSend([]fabric.SendWR{{Op: fabric.OpWriteImm, Flags: fabric.Signaled}})
		check(t, err)
		l.status(l.a.send, 0, fabric.StatusSuccess)
	}
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	check(t, small.Wait(ctx)) // the overflow ends the wait although the queue was not armed
	var c [4]fabric.Completion
	if n, err := small.Poll(c[:]); n != 2 || err != nil {
		t.Fatalf("polled %d of the 2 that fitted, %v", n, err)
	}
	if n, err := small.Poll(c[:]); n != 0 || err == nil {
		t.Fatalf("polled %d from a queue that overflowed, without an error", n)
	}
	// The overflow fails the queue pair asynchronously. After that the queue pair does
	// not answer the sender.
	for status := fabric.StatusSuccess; status == fabric.StatusSuccess; {
		if _, err := p.PostSend([]fabric.SendWR{{Op: fabric.OpWrite, Flags: fabric.Signaled}}); err != nil {
			t.Fatal(err)
		}
		for {
			if n, err := l.a.send.Poll(c[:1]); err != nil {
				t.Fatal(err)
			} else if n == 1 {
				break
			}
		}
		status = c[0].Status
	}
	if c[0].Status != fabric.StatusRetryExcErr {
		t.Errorf("the sender was told %q", c[0].Status)
	}
	if n := l.net.Counters("b").CQOverflows; n != 1 {
		t.Errorf("%d overflows counted", n)
	}
	// The other connection between these devices still works.
	l.receives(1)
	l.post(7, 8, 0)
	l.status(l.a.send, 7, fabric.StatusSuccess)
}

func TestCounters(t *testing.T) {
	l := newLink(t, fabric.RC, fabric.Timing{})
	control := must(l.a.dom.NewQP(fabric.QPConfig{Transport: fabric.RC, SendCQ: l.a.send, RecvCQ: l.a.recv, MaxSend: 4,
		MaxRecv: 4, MaxSGE: 2}))(t)
	remote := must(l.b.dom.NewQP(fabric.QPConfig{Transport: fabric.RC, SendCQ: l.b.send, RecvCQ: l.b.recv, MaxSend: 4,
		MaxRecv: 4}))(t)
	check(t, control.Connect(remote.Address(), fabric.Timing{}))
	check(t, remote.Connect(control.Address(), fabric.Timing{}))
	l.receives(2)
	_, err := remote.PostRecv(make([]fabric.RecvWR, 1))
	check(t, err)
	l.post(1, 100, 0)
	l.post(2, 20, fabric.Inline)
	_, err = control.PostSend([]fabric.SendWR{{Op: fabric.OpSend, Flags: fabric.More}, {}})
	check(t, err)

	qps := l.net.QueuePairs("a")
	if len(qps) != 2 || qps[0].Num != l.a.qp.Num() || qps[1].Num != control.Num() || qps[0].Transport != fabric.RC {
		t.Fatalf("queue pairs of a: %+v", qps)
	}
	if want := (fabrictest.Counters{WriteImms: 2, Bytes: 120, Inlines: 1}); qps[0].Counters != want {
		t.Errorf("data channel: %+v", qps[0].Counters)
	}
	if want := (fabrictest.Counters{Sends: 1, Gathers: 1}); qps[1].Counters != want {
		t.Errorf("control channel: %+v", qps[1].Counters)
	}
	check(t, remote.Close())
	if want := (fabrictest.Counters{Recvs: 1, RecvWriteImms: 2}); l.net.Counters("b") != want {
		t.Errorf("the peer, with a queue pair that is closed: %+v", l.net.Counters("b"))
	}
}

func TestConnectToNobody(t *testing.T) {
	l := newLink(t, fabric.RC, fabric.Timing{})
	q := must(l.a.dom.NewQP(fabric.QPConfig{Transport: fabric.RC, SendCQ: l.a.send, RecvCQ: l.a.recv, MaxSend: 4,
		MaxRecv: 4}))(t)
	addr := l.b.qp.Address()
	addr.GID[0] = 0xfd
	if err := q.Connect(addr, fabric.Timing{}); err == nil {
		t.Error("connected to a GID that nobody has")
	}
	// With a wrong packet sequence number Connect succeeds, but requests are not answered.
	addr = l.b.qp.Address()
	addr.PSN ^= 1
	check(t, q.Connect(addr, fabric.Timing{RetryCount: 1}))
	_, err := q.PostSend([]fabric.SendWR{{ID: 5, Op: fabric.OpWrite}})
	check(t, err)
	l.status(l.a.send, 5, fabric.StatusRetryExcErr)
}

// TestLocalKeyIsNoRemoteKey expects the local key of a region to be refused as remote key. So tests
// find code that confuses the two keys.
func TestLocalKeyIsNoRemoteKey(t *testing.T) {
	l := newLink(t, fabric.RC, fabric.Timing{})
	_, err := l.a.qp.PostSend([]fabric.SendWR{{
		ID: 1, Op: fabric.OpWrite, Addr: l.a.region.Addr(), LKey: l.a.region.LKey(), Len: 8,
		RemoteAddr: l.b.region.Addr(), RKey: l.b.region.LKey(),
	}})
	check(t, err)
	l.status(l.a.send, 1, fabric.StatusRemAccessErr)
	if n := l.net.Counters("b").AccessErrors; n != 1 {
		t.Errorf("%d access errors counted", n)
	}
}

func TestNoWindows(t *testing.T) {
	limits := fabrictest.DefaultLimits()
	limits.Windows = false
	l := newLink(t, fabric.RC, fabric.Timing{}, fabrictest.WithLimits(limits))
	if _, err := l.a.dom.NewWindow(); !errors.Is(err, fabric.ErrUnsupported) {
		t.Errorf("window on a device without: %v", err)
	}
}

func TestLive(t *testing.T) {
	l := newLink(t, fabric.RC, fabric.Timing{})
	w := must(l.a.dom.NewWindow())(t)
	want := fabrictest.Live{Devices: 2, Domains: 2, Regions: 2, Windows: 1, CQs: 4, QPs: 2}
	for _, step := range []struct {
		close func() error
		count *int
		by    int
	}{
		{func() error { return nil }, &want.QPs, 0},
		{w.Close, &want.Windows, 1},
		{l.a.region.Close, &want.Regions, 1},
		{l.a.qp.Close, &want.QPs, 1},
		{l.a.send.Close, &want.CQs, 1},
		{l.a.recv.Close, &want.CQs, 1},
		{l.a.dom.Close, &want.Domains, 1},
		{l.a.dev.Close, &want.Devices, 1},
	} {
		check(t, step.close())
		if *step.count -= step.by; l.net.Live() != want {
			t.Fatalf("live %+v, want %+v", l.net.Live(), want)
		}
	}
}

// recorder is a testing.TB that records an error instead of failing the test.
type recorder struct {
	testing.TB
	failed  bool
	cleanup func()
}

func (r *recorder) Helper()               {}
func (r *recorder) Cleanup(f func())      { r.cleanup = f }
func (r *recorder) Errorf(string, ...any) { r.failed = true }

func TestNoLeaks(t *testing.T) {
	n := fabrictest.New()
	dev := n.Device("a")
	for _, leak := range []bool{true, false} {
		r := &recorder{TB: t}
		fabrictest.NoLeaks(r, n)
		if !leak {
			check(t, dev.Close())
		}
		if r.cleanup(); r.failed != leak {
			t.Errorf("leak %v, reported %v", leak, r.failed)
		}
	}
}

//go:build cgo

package verbs_test

import (
	"context"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/verbs"
)

const (
	memLen = 256 << 10
	maxWR  = 256
	inline = 64
)

// end is one end of a connection: a device, its objects, and their memory.
type end struct {
	ctx    *verbs.Context
	dom    fabric.Domain
	sendCQ *verbs.CQ
	recvCQ *verbs.CQ
	qp     *verbs.QP
	mem    []byte
	mr     fabric.Region
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// dmaMem maps memory outside the Go heap until the test ends.
func dmaMem(t testing.TB, n int) []byte {
	t.Helper()
	m := must(unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE))(t)
	t.Cleanup(func() { check(t, unix.Munmap(m)) })
	return m
}

// openDevice opens the i-th device, or the last device if there are fewer.
func openDevice(t testing.TB, i int, options ...verbs.Option) *verbs.Context {
	t.Helper()
	names := testenv.NeedRDMA(t, 1)
	c := must(verbs.Open(names[min(i, len(names)-1)], options...))(t)
	t.Cleanup(func() { check(t, c.Close()) })
	return c
}

func newEnd(t testing.TB, i int, tr fabric.Transport, options ...verbs.Option) *end {
	t.Helper()
	mem := dmaMem(t, memLen) // mapped before the device is opened, and so unmapped after the device is closed
	e := &end{ctx: openDevice(t, i, options...), mem: mem}
	e.dom = must(e.ctx.NewDomain())(t)
	e.mr = must(e.dom.Register(mem, fabric.LocalWrite|fabric.RemoteWrite|fabric.WindowBind))(t)
	e.sendCQ = must(e.dom.NewCQ(2*maxWR, 0))(t).(*verbs.CQ)
	e.recvCQ = must(e.dom.NewCQ(2*maxWR, 0))(t).(*verbs.CQ)
	e.qp = e.newQP(t, tr)
	return e
}

func (e *end) newQP(t testing.TB, tr fabric.Transport) *verbs.QP {
	t.Helper()
	return must(e.dom.NewQP(fabric.QPConfig{
		Transport: tr, SendCQ: e.sendCQ, RecvCQ: e.recvCQ, MaxSend: maxWR, MaxRecv: maxWR, MaxInline: inline,
		MaxSGE: e.ctx.Limits().MaxSGE,
	}))(t).(*verbs.QP)
}

func connect(t testing.TB, a, b *verbs.QP) {
	t.Helper()
	check(t, a.Connect(b.Address(), fabric.Timing{}))
	check(t, b.Connect(a.Address(), fabric.Timing{}))
}

// newPair returns connected ends on the first two devices, or both on the only device.
func newPair(t testing.TB, tr fabric.Transport) (a, b *end) {
	t.Helper()
	a, b = newEnd(t, 0, tr), newEnd(t, 1, tr)
	connect(t, a.qp, b.qp)
	return a, b
}

func addrOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&b[0]))) }

func postSend(t testing.TB, q fabric.QP, wrs ...fabric.SendWR) {
	t.Helper()
	if n, err := q.PostSend(wrs); err != nil || n != len(wrs) {
		t.Fatalf("posted %d of %d sends: %v", n, len(wrs), err)
	}
}

func postRecv(t testing.TB, q fabric.QP, wrs ...fabric.RecvWR) {
	t.Helper()
	if n, err := q.PostRecv(wrs); err != nil || n != len(wrs) {
		t.Fatalf("posted %d of %d receives: %v", n, len(wrs), err)
	}
}

// poll waits for n completions with any status, and returns them.
func poll(t testing.TB, cq fabric.CQ, n int) []fabric.Completion {
	t.Helper()
	out := make([]fabric.Completion, n)
	got := 0
	deadline := time.Now().Add(20 * time.Second)
	for got < n {
		k := must(cq.Poll(out[got:]))(t)
		if got += k; k == 0 && time.Now().After(deadline) {
			t.Fatalf("%d of %d completions: %+v", got, n, out[:got])
		}
	}
	return out
}

// pollOK waits for n completions, which must all be successful, and returns them.
func pollOK(t testing.TB, cq fabric.CQ, n int) []fabric.Completion {
	t.Helper()
	out := poll(t, cq, n)
	for i := range out {
		if err := out[i].Err(); err != nil {
			t.Fatalf("completion %d: %v", i, err)
		}
	}
	return out
}

func wantStatus(t testing.TB, c fabric.Completion, want fabric.Status) {
	t.Helper()
	if c.Status != want {
		t.Fatalf("completion with status %q, want %q", c.Status, want)
	}
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

//go:build cgo && !asan

// The address sanitizer causes allocations of its own.

package verbs_test

import (
	"runtime"
	"testing"

	"github.com/splitnic/splitnic/fabric"
)

func noAllocs(t *testing.T, what string, f func()) {
	t.Helper()
	if n := testing.AllocsPerRun(100, f); n != 0 {
		t.Errorf("%s: %v allocations", what, n)
	}
}

// TestRDMADataPathAllocs expects no allocation in the data path, which the test calls through the
// interfaces of package fabric, as users do.
func TestRDMADataPathAllocs(t *testing.T) {
	a, b := newPair(t, fabric.RC)
	var send, recv fabric.QP = a.qp, b.qp
	var sendCQ, recvCQ fabric.CQ = a.sendCQ, b.recvCQ
	const batch = 16
	sends, recvs := make([]fabric.SendWR, batch), make([]fabric.RecvWR, batch)
	for i := range sends {
		sends[i] = writeImm(a, b, fabric.Inline)
	}
	sends[batch-1].Flags |= fabric.Signaled | fabric.Solicited
	out := make([]fabric.Completion, 64)
	// gathered are the same writes, each with its data in three pieces.
	var gathered []fabric.SendWR
	for _, w := range sends {
		w.Len, w.Flags = 3, w.Flags|fabric.More
		gathered = append(gathered, w, fabric.SendWR{Addr: w.Addr + 10, Len: 3, Flags: fabric.More},
			fabric.SendWR{Addr: w.Addr + 20, Len: 2})
	}
	poll := func(cq fabric.CQ, want int) {
		for got := 0; got < want; {
			n, err := cq.Poll(out)
			if err != nil {
				t.Fatal(err)
			}
			got += n
		}
	}
	noAllocs(t, "post, poll", func() {
		if n, err := recv.PostRecv(recvs); n != batch || err != nil {
			t.Fatal(n, err)
		}
		if n, err := send.PostSend(sends); n != batch || err != nil {
			t.Fatal(n, err)
		}
		poll(sendCQ, 1)
		poll(recvCQ, batch)
	})

	noAllocs(t, "post pieces, poll", func() {
		if n, err := recv.PostRecv(recvs); n != batch || err != nil {
			t.Fatal(n, err)
		}
		if n, err := send.PostSend(gathered); n != len(gathered) || err != nil {
			t.Fatal(n, err)
		}
		poll(sendCQ, 1)
		poll(recvCQ, batch)
	})

	ctx := testContext(t)
	noAllocs(t, "arm, wait", func() {
		if err := recvCQ.Arm(true); err != nil {
			t.Fatal(err)
		}
		if _, err := recv.PostRecv(recvs); err != nil {
			t.Fatal(err)
		}
		if _, err := send.PostSend(sends); err != nil {
			t.Fatal(err)
		}
		if err := recvCQ.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		poll(sendCQ, 1)
		poll(recvCQ, batch)
	})
	noAllocs(t, "arm, read event", func() {
		if err := sendCQ.Arm(false); err != nil {
			t.Fatal(err)
		}
		if _, err := sendCQ.ReadEvent(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestRDMACgoCalls expects one cgo call for each operation of the data path, whatever the number of
// records.
func TestRDMACgoCalls(t *testing.T) {
	a, b := newPair(t, fabric.RC)
	calls := func(what string, f func()) {
		t.Helper()
		before := runtime.NumCgoCall()
		f()
		if n := runtime.NumCgoCall() - before; n != 1 {
			t.Errorf("%s: %d cgo calls", what, n)
		}
	}
	const n = 200 // more than a chain of the shim has
	plain := make([]fabric.SendWR, n)
	for i := range plain {
		plain[i] = writeImm(a, b, 0)
	}
	plain[n-1].Flags = fabric.Signaled
	pieces := make([]fabric.SendWR, 4*n)
	for i := range pieces {
		pieces[i] = fabric.SendWR{Addr: a.mr.Addr(), Len: 2, LKey: a.mr.LKey()}
		if i%4 == 0 {
			pieces[i] = plain[i/4]
		}
		if i%4 != 3 {
			pieces[i].Flags |= fabric.More
		}
	}
	w := newWindow(t, a)
	postRecv(t, b.qp, fabric.RecvWR{})
	calls("bind and send", func() { must(a.qp.BindSend(a.binding(w, 1, 0), 2, fabric.Signaled))(t) })
	pollOK(t, a.sendCQ, 1)
	pollOK(t, b.recvCQ, 1)
	out := make([]fabric.Completion, n)
	for _, wrs := range [][]fabric.SendWR{plain, pieces} {
		calls("post receives", func() { postRecv(t, b.qp, make([]fabric.RecvWR, n)...) })
		calls("arm", func() { check(t, b.recvCQ.Arm(false)) })
		calls("post sends", func() { postSend(t, a.qp, wrs...) })
		pollOK(t, a.sendCQ, 1) // all receives have completed after this
		calls("poll", func() {
			if got := must(b.recvCQ.Poll(out))(t); got != n {
				t.Errorf("polled %d completions of %d", got, n)
			}
		})
	}
}

func BenchmarkEmptyPoll(b *testing.B) {
	e := newEnd(b, 0, fabric.RC)
	out := make([]fabric.Completion, 64)
	for b.Loop() {
		if _, err := e.recvCQ.Poll(out); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWriteImm(b *testing.B) {
	for _, size := range []uint32{64, 1500, 65536} {
		b.Run(map[uint32]string{64: "64", 1500: "1500", 65536: "64K"}[size], func(b *testing.B) {
			x, y := newPair(b, fabric.RC)
			const batch = 16
			sends, recvs := make([]fabric.SendWR, batch), make([]fabric.RecvWR, batch)
			for i := range sends {
				sends[i] = writeImm(x, y, 0)
				sends[i].Len = size
			}
			sends[batch-1].Flags |= fabric.Signaled
			out := make([]fabric.Completion, 64)
			b.SetBytes(int64(size) * batch)
			for b.Loop() {
				postRecv(b, y.qp, recvs...)
				postSend(b, x.qp, sends...)
				for got := 0; got < batch; {
					n, err := y.recvCQ.Poll(out)
					if err != nil {
						b.Fatal(err)
					}
					got += n
				}
				pollOK(b, x.sendCQ, 1)
			}
		})
	}
}

//go:build cgo && !asan

// The address sanitizer allocates by itself.

package verbs_test

import (
	"testing"

	"github.com/splitnic/splitnic/fabric"
)

func noAllocs(t *testing.T, what string, f func()) {
	t.Helper()
	if n := testing.AllocsPerRun(100, f); n != 0 {
		t.Errorf("%s: %v allocations", what, n)
	}
}

// The data path allocates nothing, through the interfaces as its users call it.
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

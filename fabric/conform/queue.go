package conform

import (
	"errors"
	"fmt"

	"github.com/splitnic/splitnic/fabric"
)

// Only signaled requests complete, each after all earlier requests. Its completion frees the
// slots of these as well.
func testSelectiveSignalling(r *fixture) {
	r.connect(fabric.RC)
	w := write(fabric.OpWrite, 0, r.a, r.b, 8)
	wrs := make([]fabric.SendWR, depth/2)
	id := uint64(0)
	for range 20 {
		for i := range wrs {
			wrs[i] = w
			wrs[i].ID = id
			if i != len(wrs)-1 {
				wrs[i].Flags = 0
			}
			id++
		}
		r.send(r.a.qp, wrs...)
		r.sent(r.a, id-1, 1)
	}
	r.none(r.a.sendCQ)
}

// A send queue whose requests wait for a receive fills up and returns the index of the first
// rejected request. It works again when requests have completed.
func testSendQueueFull(r *fixture) {
	r.connect(fabric.RC)
	wrs := make([]fabric.SendWR, 8*depth)
	for i := range wrs {
		wrs[i] = write(fabric.OpWriteImm, uint64(i), r.a, r.b, 8)
	}
	n, err := r.a.qp.PostSend(wrs)
	if !errors.Is(err, fabric.ErrQueueFull) || n < depth || n >= len(wrs) {
		r.Fatalf("posting %d requests to a queue of %d: %d posted, %v", len(wrs), depth, n, err)
	}
	r.rejects(r.a.qp, 0, fabric.ErrQueueFull, "posting to a full queue", wrs[0])
	r.drain(n, 8)
	r.works()
}

// drain posts receives for n messages of a's, each of size bytes and with its number as ID, and checks
// the completions.
func (r *fixture) drain(n, size int) {
	r.Helper()
	for i := 0; i < n; {
		k := min(depth, n-i)
		r.receive(r.b.qp, numbered(uint64(i), k)...)
		for j, c := range r.take(r.b.recvCQ, k) {
			r.writeImmOK(r.b.qp, c, uint64(i+j), uint32(i+j), size)
		}
		i += k
	}
	r.sent(r.a, 0, n)
}

func testReceiveQueueFull(r *fixture) {
	r.connect(fabric.RC)
	wrs := numbered(0, 8*depth)
	n, err := r.a.qp.PostRecv(wrs)
	if !errors.Is(err, fabric.ErrQueueFull) || n < depth || n >= len(wrs) {
		r.Fatalf("posting %d receives to a queue of %d: %d posted, %v", len(wrs), depth, n, err)
	}
	if n, err := r.a.qp.PostRecv(wrs[:1]); !errors.Is(err, fabric.ErrQueueFull) || n != 0 {
		r.Fatalf("posting to a full queue: %d posted, %v", n, err)
	}
	r.send(r.b.qp, write(fabric.OpWriteImm, 1, r.b, r.a, 0)) // makes room for one
	r.writeImmOK(r.a.qp, r.take(r.a.recvCQ, 1)[0], 0, 1, 0)
	r.receive(r.a.qp, fabric.RecvWR{ID: uint64(n)})
	r.check(r.a.qp.Fail())
	r.flushed(r.a.qp, 1, r.take(r.a.recvCQ, n)...)
}

// An invalid request is rejected with its index. The requests before it are posted.
func testBadOpcode(r *fixture) {
	r.connect(fabric.RC)
	for _, op := range []fabric.Opcode{0, fabric.OpBind, fabric.OpRecv, 77} {
		wrs := []fabric.SendWR{
			write(fabric.OpWrite, 1, r.a, r.b, 8), write(fabric.OpWrite, 2, r.a, r.b, 8),
			write(op, 3, r.a, r.b, 8), write(fabric.OpWrite, 4, r.a, r.b, 8),
		}
		r.rejects(r.a.qp, 2, nil, fmt.Sprintf("opcode %d as third of four requests", op), wrs...)
		r.sent(r.a, 1, 2)
	}
	r.none(r.a.sendCQ)
}

// A message that finds no receive waits for one. So do all later requests, even those that need
// no receive. Inline data is the data at the time of the post.
func testReceiverNotReady(r *fixture) {
	r.connect(fabric.RC)
	r.inlines()
	fill(r.a.mem[:200], 1)
	inline := shifted(write(fabric.OpWriteImm, 2, r.a, r.b, inlineMax), 100, 1024)
	inline.Flags |= fabric.Inline
	r.send(r.a.qp, write(fabric.OpWriteImm, 1, r.a, r.b, 100), inline)
	r.send(r.a.qp, shifted(write(fabric.OpWrite, 3, r.a, r.b, 100), 0, 4096))
	want := append([]byte(nil), r.a.mem[100:100+inlineMax]...)
	clear(r.a.mem[100:200])
	r.none(r.b.recvCQ)
	r.none(r.a.sendCQ)
	r.untouched(r.b.mem)
	r.receive(r.b.qp, fabric.RecvWR{ID: 10})
	r.writeImmOK(r.b.qp, r.take(r.b.recvCQ, 1)[0], 10, 1, 100)
	r.sent(r.a, 1, 1)
	r.same(r.b.mem[:100], r.a.mem[:100])
	r.none(r.b.recvCQ)
	r.untouched(r.b.mem[100:])
	r.receive(r.b.qp, fabric.RecvWR{ID: 11})
	r.writeImmOK(r.b.qp, r.take(r.b.recvCQ, 1)[0], 11, 2, inlineMax)
	r.sent(r.a, 2, 2)
	r.same(r.b.mem[1024:1024+inlineMax], want)
	r.same(r.b.mem[4096:4196], r.a.mem[:100])
	r.works()
}

func testReceiverNotReadyGivesUp(r *fixture) {
	t := r.Timing
	t.RNRRetry = 1
	r.connectWith(fabric.RC, t)
	r.send(r.a.qp, write(fabric.OpWriteImm, 1, r.a, r.b, 8), write(fabric.OpWriteImm, 2, r.a, r.b, 8))
	c := r.take(r.a.sendCQ, 2)
	r.all(r.a.qp, fabric.StatusRNRRetryExcErr, 1, c[0])
	r.flushed(r.a.qp, 2, c[1])
	r.none(r.b.recvCQ)
}

package conform

import (
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/splitnic/splitnic/fabric"
)

func testUnreliable(r *fixture) {
	r.connect(fabric.UC)
	for i, n := range []int{0, 1, 1500, 4096, 65536} {
		fill(r.a.mem, i)
		clear(r.b.mem)
		r.deliver(r.a, r.b, 1, write(fabric.OpWriteImm, 2, r.a, r.b, n))
		r.same(r.b.mem[:n], r.a.mem[:n])

		clear(r.b.mem)
		r.receive(r.b.qp, into(3, r.b, 0, memSize))
		r.send(r.a.qp, write(fabric.OpSend, 4, r.a, r.b, n))
		r.arrived(r.b.qp, r.take(r.b.recvCQ, 1)[0], fabric.Completion{ID: 3, Op: fabric.OpRecv, Len: uint32(n)})
		r.sent(r.a, 4, 1)
		r.same(r.b.mem[:n], r.a.mem[:n])
	}
}

// settle waits until b has processed or lost all messages that a has sent. It sends a plain
// write and waits until the data is in memory: an unreliable connection keeps the order too.
// The completion of a send means only that the message was sent.
func (r *fixture) settle() {
	r.Helper()
	const at = memSize - 4
	r.send(r.a.qp, shifted(write(fabric.OpWrite, 800, r.a, r.b, 4), 0, at)) // what fill leaves there is not 0
	r.sent(r.a, 800, 1)
	there := (*uint32)(unsafe.Pointer(&r.b.mem[at]))
	for end := time.Now().Add(r.Patience); atomic.LoadUint32(there) == 0; runtime.Gosched() {
		if time.Now().After(end) {
			r.Fatalf("a plain write behind lost messages does not arrive")
		}
	}
	clear(r.b.mem[at:])
}

// A message that cannot be delivered is lost as a whole, without an error. The next message is
// delivered.
func testUnreliableDrops(r *fixture) {
	r.connect(fabric.UC)
	fill(r.a.mem[:64], 1)
	id := uint64(0)
	lose := func(wr fabric.SendWR) {
		r.Helper()
		wr.ID, wr.Flags = id, fabric.Signaled
		id++
		r.send(r.a.qp, wr)
		r.sent(r.a, wr.ID, 1)
	}
	arrive := func() {
		r.Helper()
		r.send(r.a.qp, write(fabric.OpWriteImm, 500+id, r.a, r.b, 0))
		r.writeImmOK(r.b.qp, r.take(r.b.recvCQ, 1)[0], 100+id, uint32(500+id), 0)
		r.sent(r.a, 500+id, 1)
	}
	lose(write(fabric.OpWriteImm, 0, r.a, r.b, 64))
	lose(write(fabric.OpSend, 0, r.a, r.b, 64))
	r.settle()
	r.untouched(r.b.mem)
	r.receive(r.b.qp, fabric.RecvWR{ID: 100 + id})
	arrive()

	for _, op := range []fabric.Opcode{fabric.OpWrite, fabric.OpWriteImm} {
		bad := write(op, 0, r.a, r.b, 64)
		bad.RKey ^= 0x5500
		lose(bad)
		lose(shifted(write(op, 0, r.a, r.b, 64), 0, memSize-63))
		r.settle()
		r.receive(r.b.qp, fabric.RecvWR{ID: 100 + id})
		arrive()
	}
	r.untouched(r.b.mem)
	r.works()
}

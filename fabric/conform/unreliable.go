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
		r.receive(r.b.qp, fabric.RecvWR{ID: 1})
		r.send(r.a.qp, write(fabric.OpWriteImm, 2, r.a, r.b, n))
		r.writeImmOK(r.b.qp, r.take(r.b.recvCQ, 1)[0], 1, 2, n)
		r.ok(r.a.qp, 2, r.take(r.a.sendCQ, 1)...)
		r.same(r.b.mem[:n], r.a.mem[:n])

		clear(r.b.mem)
		r.receive(r.b.qp, fabric.RecvWR{ID: 3, Addr: r.b.region.Addr(), Len: memSize, LKey: r.b.region.LKey()})
		r.send(r.a.qp, fabric.SendWR{ID: 4, Op: fabric.OpSend, Flags: fabric.Signaled, Addr: r.a.region.Addr(),
			Len: uint32(n), LKey: r.a.region.LKey()})
		c := r.take(r.b.recvCQ, 1)[0]
		r.ok(r.b.qp, 3, c)
		r.ok(r.a.qp, 4, r.take(r.a.sendCQ, 1)...)
		if c.Op != fabric.OpRecv || int(c.Len) != n {
			r.Fatalf("receive completion %+v of %d bytes", c, n)
		}
		r.same(r.b.mem[:n], r.a.mem[:n])
	}
}

// settle waits until b has processed or lost all messages that a has sent. It sends a plain
// write and waits until the data is in memory: an unreliable connection keeps the order too.
// The completion of a send means only that the message was sent.
func (r *fixture) settle() {
	r.Helper()
	const at = memSize - 4
	mark := write(fabric.OpWrite, 800, r.a, r.b, 4) // what fill leaves there is not 0
	mark.RemoteAddr += at
	r.send(r.a.qp, mark)
	r.ok(r.a.qp, 800, r.take(r.a.sendCQ, 1)...)
	there := (*uint32)(unsafe.Pointer(&r.b.mem[at]))
	for end := time.Now().Add(r.Patience); atomic.LoadUint32(there) == 0; runtime.Gosched() {
		if time.Now().After(end) {
			r.Fatal("a plain write behind lost messages does not arrive")
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
		r.ok(r.a.qp, wr.ID, r.take(r.a.sendCQ, 1)...)
	}
	arrive := func() {
		r.Helper()
		r.send(r.a.qp, write(fabric.OpWriteImm, 500+id, r.a, r.b, 0))
		r.writeImmOK(r.b.qp, r.take(r.b.recvCQ, 1)[0], 100+id, uint32(500+id), 0)
		r.ok(r.a.qp, 500+id, r.take(r.a.sendCQ, 1)...)
	}
	lose(write(fabric.OpWriteImm, 0, r.a, r.b, 64))
	lose(fabric.SendWR{Op: fabric.OpSend, Addr: r.a.region.Addr(), Len: 64, LKey: r.a.region.LKey()})
	r.settle()
	r.untouched(r.b.mem)
	r.receive(r.b.qp, fabric.RecvWR{ID: 100 + id})
	arrive()

	for _, op := range []fabric.Opcode{fabric.OpWrite, fabric.OpWriteImm} {
		bad := write(op, 0, r.a, r.b, 64)
		bad.RKey ^= 0x5500
		lose(bad)
		bad = write(op, 0, r.a, r.b, 64)
		bad.RemoteAddr += memSize - 63
		lose(bad)
		r.settle()
		r.receive(r.b.qp, fabric.RecvWR{ID: 100 + id})
		arrive()
	}
	r.untouched(r.b.mem)
	r.works()
}

package conform

import (
	"encoding/binary"

	"github.com/splitnic/splitnic/fabric"
)

const (
	slots    = 256
	slotSize = 64
	batch    = 16
)

// slotWrites fills wrs with writes of messages first, first+1, … each from its
// own slot of from's memory to the same slot of to's. The last is signaled.
func slotWrites(wrs []fabric.SendWR, first int, from, to *end) {
	for i := range wrs {
		seq := first + i
		off := seq % slots * slotSize
		binary.LittleEndian.PutUint64(from.mem[off:], uint64(seq)|1<<63)
		binary.LittleEndian.PutUint64(from.mem[off+slotSize-8:], ^uint64(seq))
		wrs[i] = shifted(write(fabric.OpWriteImm, uint64(seq), from, to, slotSize), off, off)
		if i != len(wrs)-1 {
			wrs[i].Flags = 0
		}
	}
}

// slotHolds reports whether message seq has arrived whole in its slot.
func slotHolds(e *end, seq int) bool {
	p := e.mem[seq%slots*slotSize:][:slotSize]
	return binary.LittleEndian.Uint64(p) == uint64(seq)|1<<63 && binary.LittleEndian.Uint64(p[slotSize-8:]) == ^uint64(seq)
}

func testOrder(r *fixture) {
	r.connect(fabric.RC)
	total := 10000 / r.Scale / batch * batch
	var before uint64
	if r.RNR != nil {
		before = r.RNR()
	}
	wrs := make([]fabric.SendWR, batch)
	for seq := 0; seq < total; seq += batch {
		r.receive(r.b.qp, numbered(uint64(seq), batch)...)
		slotWrites(wrs, seq, r.a, r.b)
		r.send(r.a.qp, wrs...)
		for i, c := range r.take(r.b.recvCQ, batch) {
			r.writeImmOK(r.b.qp, c, uint64(seq+i), uint32(seq+i), slotSize)
			if !slotHolds(r.b, seq+i) {
				r.Fatalf("message %d was indicated before all its bytes had arrived", seq+i)
			}
		}
		c := r.sent(r.a, uint64(seq+batch-1), 1)
		// libibverbs has one completion opcode for both kinds of write.
		if c[0].Op != fabric.OpWrite && c[0].Op != fabric.OpWriteImm {
			r.Fatalf("completion of a write: %+v", c[0])
		}
	}
	r.none(r.a.sendCQ)
	r.none(r.b.recvCQ)
	if r.RNR != nil && r.RNR() != before {
		r.Errorf("%d messages found no receive, though each had one", r.RNR()-before)
	}
}

func testBatches(r *fixture) {
	r.connect(fabric.RC)
	seq := 0
	for _, n := range []int{1, 2, 3, 15, 16, 17, 33, depth} {
		wrs := make([]fabric.SendWR, n)
		slotWrites(wrs, seq, r.a, r.b)
		for i := range wrs {
			wrs[i].Flags = fabric.Signaled
		}
		r.receive(r.b.qp, numbered(uint64(seq), n)...)
		r.send(r.a.qp, wrs...)
		r.received(r.b, uint64(seq), n)
		r.sent(r.a, uint64(seq), n)
		for i := range n {
			if !slotHolds(r.b, seq+i) {
				r.Fatalf("message %d of a batch of %d did not arrive whole", i, n)
			}
		}
		seq += n
	}
	for _, e := range r.ends() {
		if n, err := e.qp.PostSend(nil); n != 0 || err != nil {
			r.Fatalf("empty batch of sends: %d, %v", n, err)
		}
		if n, err := e.qp.PostRecv(nil); n != 0 || err != nil {
			r.Fatalf("empty batch of receives: %d, %v", n, err)
		}
	}
}

func testSizes(r *fixture) {
	r.connect(fabric.RC)
	for i, n := range []int{0, 1, 63, 64, 65, 1500, 4095, 4096, 4097, 9000, 65536, memSize - 8} {
		fill(r.a.mem, i)
		clear(r.b.mem)
		r.deliver(r.a, r.b, 5, shifted(write(fabric.OpWriteImm, uint64(0xfff00000+i), r.a, r.b, n), 3, 5))
		r.same(r.b.mem[5:5+n], r.a.mem[3:3+n])
		r.untouched(r.b.mem[:5])
		r.untouched(r.b.mem[5+n:])
	}
}

// A write with immediate data contains its own address. The memory of the receive that it
// consumes does not change.
func testReceiveWithoutMemory(r *fixture) {
	r.connect(fabric.RC)
	fill(r.a.mem[:100], 1)
	r.receive(r.b.qp, into(1, r.b, 4096, 4096), fabric.RecvWR{ID: 2})
	r.send(r.a.qp, write(fabric.OpWriteImm, 7, r.a, r.b, 100), write(fabric.OpWriteImm, 8, r.a, r.b, 100))
	c := r.take(r.b.recvCQ, 2)
	r.writeImmOK(r.b.qp, c[0], 1, 7, 100)
	r.writeImmOK(r.b.qp, c[1], 2, 8, 100)
	r.same(r.b.mem[:100], r.a.mem[:100])
	r.untouched(r.b.mem[100:])
}

func testSend(r *fixture) {
	r.connect(fabric.RC)
	const n = 8
	fill(r.a.mem, 3)
	for i := range n {
		r.receive(r.b.qp, into(uint64(i), r.b, i*8192, 8000))
	}
	for i := range n {
		r.send(r.a.qp, shifted(write(fabric.OpSend, uint64(i), r.a, r.b, 1000*i+1), i, 0))
	}
	recvs := r.take(r.b.recvCQ, n)
	for i := range n {
		r.arrived(r.b.qp, recvs[i], fabric.Completion{ID: uint64(i), Op: fabric.OpRecv, Len: uint32(1000*i + 1)})
		r.sentAs(r.a, uint64(i), fabric.OpSend)
		r.same(r.b.mem[i*8192:][:1000*i+1], r.a.mem[i:][:1000*i+1])
		r.untouched(r.b.mem[i*8192+1000*i+1 : (i+1)*8192])
	}
}

// A SEND with immediate data fills the memory of its receive, and completes as a SEND.
func testSendImmediate(r *fixture) {
	r.connect(fabric.RC)
	fill(r.a.mem, 9)
	r.receive(r.b.qp, fabric.RecvWR{ID: 1}, into(2, r.b, 0, 64))
	for i, n := range []uint32{0, 64} {
		wr := write(fabric.OpSendImm, uint64(4+i), r.a, r.b, int(n))
		wr.Imm = 0xfedcba90 + n
		r.send(r.a.qp, wr)
		r.arrived(r.b.qp, r.take(r.b.recvCQ, 1)[0],
			fabric.Completion{ID: uint64(1 + i), Op: fabric.OpRecv, Flags: fabric.WithImm, Imm: wr.Imm, Len: n})
		r.sentAs(r.a, wr.ID, fabric.OpSend)
	}
	r.same(r.b.mem[:64], r.a.mem[:64])
}

func testSendZeroLength(r *fixture) {
	r.connect(fabric.RC)
	r.receive(r.b.qp, fabric.RecvWR{ID: 1}, into(2, r.b, 0, 64))
	r.send(r.a.qp, fabric.SendWR{ID: 1, Op: fabric.OpSend, Flags: fabric.Signaled},
		fabric.SendWR{ID: 2, Op: fabric.OpSend, Flags: fabric.Signaled})
	c := r.received(r.b, 1, 2)
	r.sent(r.a, 1, 2)
	if c[0].Len != 0 || c[1].Len != 0 {
		r.Fatalf("empty messages have lengths %d and %d", c[0].Len, c[1].Len)
	}
	r.untouched(r.b.mem[:64])
}

// A plain write consumes no receive. Its data is visible when a later message has arrived.
func testPlainWrite(r *fixture) {
	r.connect(fabric.RC)
	fill(r.a.mem[:5000], 4)
	r.receive(r.b.qp, numbered(40, 2)...)
	r.send(r.a.qp, write(fabric.OpWrite, 1, r.a, r.b, 5000), write(fabric.OpWriteImm, 2, r.a, r.b, 0))
	r.writeImmOK(r.b.qp, r.take(r.b.recvCQ, 1)[0], 40, 2, 0)
	r.same(r.b.mem[:5000], r.a.mem[:5000])
	r.sentAs(r.a, 1, fabric.OpWrite)
	r.sent(r.a, 2, 1)
	r.none(r.b.recvCQ)
}

func testInline(r *fixture) {
	r.connect(fabric.RC)
	r.inlines()
	r.receive(r.b.qp, append(numbered(0, 2), into(2, r.b, 4096, inlineMax))...)
	for i, n := range []int{1, inlineMax, inlineMax} {
		fill(r.a.mem[:n], i)
		wr := write(fabric.OpWriteImm, uint64(i), r.a, r.b, n)
		if i == 2 {
			wr = fabric.SendWR{ID: 2, Op: fabric.OpSend, Flags: fabric.Signaled, Addr: wr.Addr, Len: wr.Len}
		}
		wr.Flags |= fabric.Inline
		wr.LKey = 0xdead // ignored
		wr.RemoteAddr += uint64(i * 1024)
		r.send(r.a.qp, wr)
		clear(r.a.mem[:n]) // copied while posting
	}
	r.received(r.b, 0, 3)
	r.sent(r.a, 0, 3)
	for i, p := range [][]byte{r.b.mem[:1], r.b.mem[1024:][:inlineMax], r.b.mem[4096:][:inlineMax]} {
		want := make([]byte, len(p))
		fill(want, i)
		r.same(p, want)
	}
}

func testInlineTooLong(r *fixture) {
	r.connect(fabric.RC)
	r.receive(r.b.qp, numbered(0, 3)...)
	wrs := []fabric.SendWR{
		write(fabric.OpWriteImm, 0, r.a, r.b, 8), write(fabric.OpWriteImm, 1, r.a, r.b, 8192),
		write(fabric.OpWriteImm, 2, r.a, r.b, 8),
	}
	wrs[1].Flags |= fabric.Inline
	r.rejects(r.a.qp, 1, nil, "inline data over the limit as second of three requests", wrs...)
	r.send(r.a.qp, write(fabric.OpWriteImm, 3, r.a, r.b, 8))
	c := r.take(r.b.recvCQ, 2)
	r.writeImmOK(r.b.qp, c[0], 0, 0, 8)
	r.writeImmOK(r.b.qp, c[1], 1, 3, 8)
}

// Several queue pairs use one completion queue. Each completion names its queue pair, and the
// completions of one queue pair are in order.
func testSharedCQ(r *fixture) {
	const qps, rounds = 4, 8
	var as, bs [qps]fabric.QP
	for i := range qps {
		r.connect(fabric.RC)
		as[i], bs[i] = r.a.qp, r.b.qp
		r.receive(bs[i], numbered(0, rounds)...)
	}
	for round := range rounds {
		for i := range qps {
			wr := write(fabric.OpWriteImm, uint64(round), r.a, r.b, 8)
			wr.Imm = uint32(i<<8 | round)
			r.send(as[i], wr)
		}
	}
	// inOrder calls check with each completion, the index of its queue pair, and how many this had before.
	inOrder := func(cq fabric.CQ, of [qps]fabric.QP, check func(i, n int, c fabric.Completion)) {
		r.Helper()
		byNum := make(map[uint32]int)
		for i := range of {
			byNum[of[i].Num()] = i
		}
		if len(byNum) != qps {
			r.Fatalf("%d queue pairs of one device share %d numbers", qps, len(byNum))
		}
		var next [qps]int
		for _, c := range r.take(cq, qps*rounds) {
			i, ok := byNum[c.QPN]
			if !ok {
				r.Fatalf("completion of unknown queue pair %#x", c.QPN)
			}
			check(i, next[i], c)
			next[i]++
		}
	}
	inOrder(r.b.recvCQ, bs, func(i, n int, c fabric.Completion) {
		r.writeImmOK(bs[i], c, uint64(n), uint32(i<<8|n), 8)
	})
	inOrder(r.a.sendCQ, as, func(i, n int, c fabric.Completion) { r.ok(as[i], uint64(n), c) })
}

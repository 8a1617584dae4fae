package conform

import "github.com/splitnic/splitnic/fabric"

const readSize = 64 << 10

// reading connects the fixture so that a reads from b, and returns memory of b's to
// read, filled.
func (r *fixture) reading(depth int) fabric.Region {
	r.Helper()
	mem := Alloc(r, readSize)
	fill(mem, 7)
	source := must(r.b.dom.Register(mem, fabric.RemoteRead))(r)
	r.connectReading(depth)
	return source
}

// connectReading gives both ends a fresh queue pair, by which a reads from b.
func (r *fixture) connectReading(depth int) {
	r.Helper()
	limit := min(r.a.dev.Limits().MaxRdAtomic, r.b.dev.Limits().MaxDestRdAtomic)
	if limit < 1 {
		r.Fatalf("reads are not to be had: at most %d of a's, %d at b", r.a.dev.Limits().MaxRdAtomic,
			r.b.dev.Limits().MaxDestRdAtomic)
	}
	n := uint8(min(depth, limit, 255))
	r.a.qp = must(r.newQPWith(r.a, func(c *fabric.QPConfig) { c.MaxRdAtomic = n }))(r)
	r.b.qp = must(r.newQPWith(r.b, func(c *fabric.QPConfig) { c.MaxDestRdAtomic = n }))(r)
	r.link(r.Timing)
}

// read is a signaled read of n bytes from the start of a region of b's to the
// start of a's.
func (r *fixture) read(id uint64, from fabric.Region, n int) fabric.SendWR {
	return fabric.SendWR{
		ID: id, Op: fabric.OpRead, Flags: fabric.Signaled, Addr: r.a.region.Addr(), LKey: r.a.region.LKey(),
		Len: uint32(n), RemoteAddr: from.Addr(), RKey: from.RKey(),
	}
}

// Reads of all sizes return the peer's data, and the peer gets no completion.
func testRead(r *fixture) {
	source := r.reading(4)
	want := make([]byte, readSize)
	fill(want, 7)
	r.receive(r.b.qp, numbered(0, 1)...)
	for i, n := range []int{1, 63, 64, 1500, 4096, 4097, 9000, readSize - 8} {
		clear(r.a.mem)
		r.send(r.a.qp, shifted(r.read(uint64(i), source, n), 3, 5))
		r.sentAs(r.a, uint64(i), fabric.OpRead)
		r.same(r.a.mem[3:3+n], want[5:5+n])
		r.untouched(r.a.mem[:3])
		r.untouched(r.a.mem[3+n:])
	}
	r.none(r.b.recvCQ)
	r.none(r.b.sendCQ)
}

// The device delays reads beyond the number that can be outstanding. Reads, and the requests
// between them, complete in the order in which they were posted.
func testReadDepth(r *fixture) {
	const n, size = 24, 2500
	for _, depth := range []int{1, 2, 8} {
		source := r.reading(depth)
		want := make([]byte, readSize)
		fill(want, 7)
		clear(r.a.mem)
		var wrs []fabric.SendWR
		for i := range n {
			wrs = append(wrs, shifted(r.read(uint64(len(wrs)), source, size), i*size, i*size))
			if i%5 == 0 {
				wrs = append(wrs, shifted(write(fabric.OpWrite, uint64(len(wrs)), r.a, r.b, 8), memSize-8, 0))
			}
		}
		r.send(r.a.qp, wrs...)
		r.sent(r.a, 0, len(wrs))
		r.same(r.a.mem[:n*size], want[:n*size])
		r.hangUp()
		r.check(source.Close())
	}
}

// A request with Fence sends the data that earlier reads have fetched.
func testReadFence(r *fixture) {
	const n = 20000
	source := r.reading(4)
	for i := range 20 {
		clear(r.a.mem[:n])
		clear(r.b.mem[:n])
		r.receive(r.b.qp, into(uint64(i), r.b, 0, n))
		wr, fenced := r.read(1, source, n), write(fabric.OpSend, 2, r.a, r.b, n)
		wr.Flags = 0
		fenced.Flags |= fabric.Fence
		r.send(r.a.qp, wr, fenced)
		r.received(r.b, uint64(i), 1)
		r.sent(r.a, 2, 1)
		want := make([]byte, n)
		fill(want, 7)
		r.same(r.b.mem[:n], want)
	}
}

// A read with an invalid key, or with a key that does not permit reads, is rejected, returns no
// data, and ends the connection. The key of a region with RemoteWrite only does not permit
// reads.
func testReadAccess(r *fixture) {
	source := r.reading(4)
	gone := must(r.b.dom.Register(Alloc(r, 4096), fabric.RemoteRead))(r)
	r.check(gone.Close())
	foreign := must(must(r.b.dev.NewDomain())(r).Register(Alloc(r, 4096), fabric.RemoteRead))(r)
	for _, c := range []place{
		{"no remote read", r.b.region.Addr(), r.b.region.RKey()},
		{"unknown key", source.Addr(), source.RKey() ^ 0x5500},
		{"wrong tag of a key", source.Addr(), source.RKey() ^ 1},
		{"one byte before", source.Addr() - 1, source.RKey()},
		{"one byte over the end", source.Addr() + readSize - 63, source.RKey()},
		{"other domain", foreign.Addr(), foreign.RKey()},
		{"deregistered", gone.Addr(), gone.RKey()},
	} {
		clear(r.a.mem)
		good, bad := r.read(1, source, 8), r.read(2, source, 64)
		bad.RemoteAddr, bad.RKey = c.addr, c.key
		bad.Addr += 1024
		out := r.take(r.a.sendCQ, r.sendFailing(r.a.qp, good, bad, good))
		r.ok(r.a.qp, 1, out[0])
		r.all(r.a.qp, fabric.StatusRemAccessErr, 2, out[1])
		if len(out) == 3 && out[2].Status != fabric.StatusWRFlushErr {
			r.Fatalf("%s: what is behind it completed with %q", c.name, out[2].Status)
		}
		r.untouched(r.a.mem[8:])
		r.bothDead()
		r.hangUp()
		r.connectReading(4)
	}
}

// The data of a read is written only to memory that the device may write to.
func testReadLocalAccess(r *fixture) {
	source := r.reading(4)
	readOnly := must(r.a.dom.Register(Alloc(r, 4096), 0))(r)
	for name, change := range map[string]func(*fabric.SendWR){
		"read-only memory": func(w *fabric.SendWR) { w.Addr, w.LKey = readOnly.Addr(), readOnly.LKey() },
		"over the end":     func(w *fabric.SendWR) { w.Addr = r.a.region.Addr() + memSize - 63 },
	} {
		wr := r.read(1, source, 64)
		change(&wr)
		r.send(r.a.qp, wr)
		if c := r.take(r.a.sendCQ, 1)[0]; c.Status == fabric.StatusSuccess || c.ID != 1 {
			r.Fatalf("%s: a read completed with %q", name, c.Status)
		}
		r.hangUp()
		r.connectReading(4)
	}
}

// Reads fail on a queue pair that was created without them, on either side. The queue pairs of a
// session are created in this way.
func testReadNotAllowed(r *fixture) {
	source := must(r.b.dom.Register(Alloc(r, readSize), fabric.RemoteRead))(r)
	r.connect(fabric.RC)
	wr := r.read(1, source, 64)
	r.rejects(r.a.qp, 0, nil, "a read without MaxRdAtomic", wr)
	r.works()
	r.hangUp()

	r.a.qp = must(r.newQPWith(r.a, func(c *fabric.QPConfig) { c.MaxRdAtomic = 1 }))(r)
	r.b.qp = r.newQP(r.b, fabric.RC)
	r.link(r.Timing)
	r.works()
	clear(r.a.mem)
	r.send(r.a.qp, wr)
	// The specification has one status for a request that the responder does not support.
	// Some devices report the status for a wrong key instead.
	if c := r.take(r.a.sendCQ, 1)[0]; c.Status != fabric.StatusRemInvReqErr && c.Status != fabric.StatusRemAccessErr {
		r.Fatalf("a read without MaxDestRdAtomic at the peer completed with %q", c.Status)
	}
	r.untouched(r.a.mem)
	r.dead(r.a, r.b)
}

// An invalid read is rejected when it is posted. An invalid MaxRdAtomic or MaxDestRdAtomic is
// rejected when the queue pair is created.
func testReadRefused(r *fixture) {
	source := r.reading(4)
	for name, f := range map[string]fabric.Flags{"inline": fabric.Inline, "in two pieces": fabric.More} {
		wr := r.read(1, source, 8)
		wr.Flags |= f
		r.rejects(r.a.qp, 0, nil, "a read "+name, wr, wr)
	}
	wr := r.read(2, source, 8)
	r.send(r.a.qp, wr)
	r.sent(r.a, 2, 1)

	l := r.a.dev.Limits()
	for _, c := range []struct {
		name   string
		change func(*fabric.QPConfig)
		can    bool // the device has so many
	}{
		{name: "reads on an unreliable connection",
			change: func(c *fabric.QPConfig) { c.Transport, c.MaxRdAtomic = fabric.UC, 1 }},
		{name: "answers on an unreliable connection",
			change: func(c *fabric.QPConfig) { c.Transport, c.MaxDestRdAtomic = fabric.UC, 1 }},
		{"255 reads", func(c *fabric.QPConfig) { c.MaxRdAtomic = 255 }, l.MaxRdAtomic >= 255},
		{"255 answers", func(c *fabric.QPConfig) { c.MaxDestRdAtomic = 255 }, l.MaxDestRdAtomic >= 255},
	} {
		if !c.can && failing(r.newQPWith(r.a, c.change)) == nil {
			r.Fatalf("%s, with the limits %+v", c.name, l)
		}
	}
}

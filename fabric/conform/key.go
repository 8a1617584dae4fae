package conform

import "github.com/splitnic/splitnic/fabric"

// A message with an invalid key, or with an address outside the region, is rejected, writes no
// memory, and ends the connection: both ends flush.
func testRemoteAccess(r *fixture) { r.remoteAccess(fabric.OpWrite, fabric.OpWriteImm) }

func (r *fixture) remoteAccess(ops ...fabric.Opcode) {
	r.Helper()
	r.connect(fabric.RC)
	readOnly := must(r.b.dom.Register(Alloc(r, 4096), 0))(r)
	local := must(r.b.dom.Register(Alloc(r, 4096), fabric.LocalWrite))(r)
	foreignMem := Alloc(r, 4096)
	foreign := must(must(r.b.dev.NewDomain())(r).Register(foreignMem, fabric.LocalWrite|fabric.RemoteWrite))(r)
	gone := must(r.b.dom.Register(Alloc(r, 4096), fabric.LocalWrite|fabric.RemoteWrite))(r)
	r.check(gone.Close())

	addr, key := r.b.region.Addr(), r.b.region.RKey()
	for _, c := range []place{
		{"unknown key", addr, key ^ 0x5500},
		{"wrong tag of a key", addr, key ^ 1},
		{"key zero", addr, 0},
		{"one byte before", addr - 1, key},
		{"one byte over the end", addr + memSize - 63, key},
		{"behind the end", addr + memSize, key},
		{"wraps around", ^uint64(0) - 7, key},
		{"address zero", 0, key},
		{"no remote write", local.Addr(), local.RKey()},
		{"read only", readOnly.Addr(), readOnly.RKey()},
		{"other domain", foreign.Addr(), foreign.RKey()},
		{"deregistered", gone.Addr(), gone.RKey()},
	} {
		for _, op := range ops {
			fill(r.a.mem[:64], 1)
			r.receive(r.b.qp, numbered(20, 3)...)
			r.receive(r.a.qp, numbered(30, 3)...)
			good, bad := write(fabric.OpWrite, 1, r.a, r.b, 64), write(op, 2, r.a, r.b, 64)
			good.Flags, good.RemoteAddr = 0, addr+1024
			bad.RemoteAddr, bad.RKey, bad.Flags = c.addr, c.key, 0
			n := r.sendFailing(r.a.qp, good, bad, good)
			out := r.take(r.a.sendCQ, n-1) // good ones are not signaled
			if !r.isRefusal(out[0].Status) || out[0].ID != 2 {
				r.Fatalf("%s, opcode %d: request %d completed with %q", c.name, op, out[0].ID, out[0].Status)
			}
			r.failed(r.a.qp, fabric.StatusWRFlushErr, 1, out[1:]...)
			first := fabric.StatusWRFlushErr
			if op == fabric.OpWriteImm {
				first = r.Traits.RefusedWriteImm
			}
			recvs := r.take(r.b.recvCQ, 3)
			r.failed(r.b.qp, first, 20, recvs[0])
			r.failed(r.b.qp, fabric.StatusWRFlushErr, 21, recvs[1:]...)
			r.failed(r.a.qp, fabric.StatusWRFlushErr, 30, r.take(r.a.recvCQ, 3)...)
			r.bothDead()
			if !r.anyRefusal { // nothing says that it can be seen
				r.same(r.b.mem[1024:1024+64], r.a.mem[:64]) // what came before has arrived
			}
			clear(r.b.mem[1024 : 1024+64])
			r.untouched(r.b.mem)
			r.untouched(foreignMem)
			r.reconnect(fabric.RC)
		}
	}
	r.send(r.a.qp, shifted(write(fabric.OpWrite, 1, r.a, r.b, 64), 0, memSize-64)) // ends exactly where the region does
	r.sent(r.a, 1, 1)
	r.works()
}

// A request with local memory that its own end must not use fails at that end.
func testLocalAccess(r *fixture) {
	r.connect(fabric.RC)
	foreign := must(must(r.a.dev.NewDomain())(r).Register(Alloc(r, 4096), fabric.LocalWrite))(r)
	addr, key := r.a.region.Addr(), r.a.region.LKey()
	for _, c := range []struct {
		name string
		addr uint64
		key  uint32
		want fabric.Status
	}{
		{"unknown key", addr, key ^ 0x5500, r.Traits.BadLKey},
		{"before the region", addr - 1, key, r.Traits.BadLocal},
		{"over its end", addr + memSize - 63, key, r.Traits.BadLocal},
		{"wraps around", ^uint64(0) - 7, key, r.Traits.BadLocal},
		{"other domain", foreign.Addr(), foreign.LKey(), r.Traits.BadLKey},
	} {
		w := write(fabric.OpWrite, 1, r.a, r.b, 64)
		w.Addr, w.LKey = c.addr, c.key
		out := r.take(r.a.sendCQ, r.sendFailing(r.a.qp, w, write(fabric.OpWrite, 2, r.a, r.b, 64)))
		if out[0].Status != c.want || out[0].ID != 1 {
			r.Fatalf("%s: request %d completed with %q, want %q", c.name, out[0].ID, out[0].Status, c.want)
		}
		r.flushed(r.a.qp, 2, out[1:]...)
		r.untouched(r.b.mem)
		r.reconnect(fabric.RC)
	}
}

// A SEND into a receive that may not be written to ends the connection.
func testReceiveAccess(r *fixture) {
	r.connect(fabric.RC)
	readOnly := must(r.b.dom.Register(Alloc(r, 4096), 0))(r)
	addr, key := r.b.region.Addr(), r.b.region.LKey()
	for _, c := range []place{
		{"unknown key", addr, key ^ 0x5500},
		{"over the region's end", addr + memSize - 63, key},
		{"read only", readOnly.Addr(), readOnly.LKey()},
	} {
		fill(r.a.mem[:64], 1)
		r.receive(r.b.qp, fabric.RecvWR{ID: 1, Addr: c.addr, Len: 64, LKey: c.key})
		r.send(r.a.qp, write(fabric.OpSend, 2, r.a, r.b, 64))
		if s := r.take(r.a.sendCQ, 1)[0]; s.Status == fabric.StatusSuccess || s.ID != 2 {
			r.Fatalf("%s: the sender was told %q about request %d", c.name, s.Status, s.ID)
		}
		if b := r.take(r.b.recvCQ, 1)[0]; b.Status == fabric.StatusSuccess || b.ID != 1 {
			r.Fatalf("%s: the receiver was told %q about receive %d", c.name, b.Status, b.ID)
		}
		r.bothDead()
		r.untouched(r.b.mem)
		r.reconnect(fabric.RC)
	}
}

func testSendTooLong(r *fixture) {
	r.connect(fabric.RC)
	r.receive(r.b.qp, into(1, r.b, 0, 64), into(2, r.b, 0, 64), fabric.RecvWR{ID: 3})
	r.send(r.a.qp, write(fabric.OpSend, 1, r.a, r.b, 64), write(fabric.OpSend, 2, r.a, r.b, 65))
	s, b := r.take(r.a.sendCQ, 2), r.take(r.b.recvCQ, 3)
	r.ok(r.a.qp, 1, s[0])
	r.ok(r.b.qp, 1, b[0])
	r.all(r.a.qp, r.Traits.SendTooLong[0], 2, s[1])
	r.all(r.b.qp, r.Traits.SendTooLong[1], 2, b[1])
	r.flushed(r.b.qp, 3, b[2])
	r.bothDead()
	r.untouched(r.b.mem[64:])
}

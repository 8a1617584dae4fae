package conform

import (
	"errors"
	"math/rand/v2"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
)

// gathered returns the records of the request first with data in pieces of e's memory. A piece is
// given as offset and length.
func gathered(first fabric.SendWR, e *end, pieces ...[2]int) []fabric.SendWR {
	wrs := make([]fabric.SendWR, len(pieces))
	for i, p := range pieces {
		if i == 0 {
			wrs[0] = first
		}
		wrs[i].Addr, wrs[i].Len, wrs[i].LKey = e.region.Addr()+uint64(p[0]), uint32(p[1]), e.region.LKey()
		if i != len(pieces)-1 {
			wrs[i].Flags |= fabric.More
		}
	}
	return wrs
}

// joined returns the concatenated pieces of e's memory.
func joined(e *end, pieces ...[2]int) []byte {
	out := []byte{}
	for _, p := range pieces {
		out = append(out, e.mem[p[0]:][:p[1]]...)
	}
	return out
}

// gatherable connects the fixture. It skips the test on a device that supports too few pieces.
func (r *fixture) gatherable() {
	r.Helper()
	r.severalPieces()
	r.connect(fabric.RC)
}

func (r *fixture) severalPieces() {
	r.Helper()
	if r.pieces < 4 {
		r.Skipf("the device takes %d pieces per request", r.pieces)
	}
}

// The pieces arrive as one message with one completion, in the order of their records. Their order and
// distance in memory do not matter.
func testGather(r *fixture) {
	r.gatherable()
	fill(r.a.mem, 1)
	many := make([][2]int, r.pieces)
	for i := range many {
		many[i] = [2]int{(len(many) - i) * 1024, 100 + i}
	}
	for i, pieces := range [][][2]int{
		{{0, 8}, {8, 8}},                             // adjacent
		{{5000, 100}, {3, 1}, {70000, 60}},           // backwards
		{{100, 64}, {100, 64}, {100, 64}},            // the same three times
		{{0, 0}, {4096, 10}},                         // empty first
		{{4096, 10}, {0, 0}, {8192, 20}},             // empty in the middle
		{{4096, 10}, {0, 0}},                         // empty last
		{{0, 0}, {0, 0}, {0, 0}},                     // no data
		{{1, 4095}, {10000, 4097}, {30000, 1}},       // around the MTU
		{{1, 65536}, {70000, 65535}, {140001, 9000}}, // many packets
		many, // as many as the device supports
	} {
		want := joined(r.a, pieces...)
		for _, op := range []fabric.Opcode{fabric.OpWriteImm, fabric.OpWrite, fabric.OpSend} {
			clear(r.b.mem)
			id := uint64(10*i) + uint64(op)
			wrs := gathered(write(op, id, r.a, r.b, 0), r.a, pieces...)
			at := 3
			switch op {
			case fabric.OpSend:
				at = 0
				r.receive(r.b.qp, into(id, r.b, 0, memSize))
			case fabric.OpWriteImm:
				r.receive(r.b.qp, fabric.RecvWR{ID: id})
			}
			wrs[0].RemoteAddr += uint64(at)
			r.send(r.a.qp, wrs...)
			c := r.take(r.a.sendCQ, 1)[0]
			if r.ok(r.a.qp, id, c); c.Op != op && op != fabric.OpWriteImm {
				r.Fatalf("send completion %+v", c)
			}
			switch op {
			case fabric.OpSend:
				r.arrived(r.b.qp, r.take(r.b.recvCQ, 1)[0],
					fabric.Completion{ID: id, Op: fabric.OpRecv, Len: uint32(len(want))})
			case fabric.OpWriteImm:
				r.writeImmOK(r.b.qp, r.take(r.b.recvCQ, 1)[0], id, uint32(id), len(want))
			}
			r.same(r.b.mem[at:at+len(want)], want)
			r.untouched(r.b.mem[:at])
			r.untouched(r.b.mem[at+len(want):])
		}
	}
	r.none(r.a.sendCQ)
	r.none(r.b.recvCQ)
}

// Inline applies to all pieces of a request: they need no registration, and may be reused when
// the post returns.
func testGatherInline(r *fixture) {
	r.gatherable()
	r.inlines()
	pieces := [][2]int{{2000, 1}, {0, 0}, {1000, 20}, {50, inlineMax - 21}}
	for i, op := range []fabric.Opcode{fabric.OpWriteImm, fabric.OpSend} {
		fill(r.a.mem, i)
		clear(r.b.mem[:4096])
		want := joined(r.a, pieces...)
		wrs := gathered(write(op, 7, r.a, r.b, 0), r.a, pieces...)
		wrs[0].Flags |= fabric.Inline
		for j := range wrs {
			wrs[j].LKey = 0xdead // ignored
		}
		r.send(r.a.qp, wrs...)
		clear(r.a.mem[:4096])
		r.receive(r.b.qp, into(8, r.b, 0, inlineMax))
		r.received(r.b, 8, 1)
		r.sent(r.a, 7, 1)
		r.same(r.b.mem[:inlineMax], want)
		r.untouched(r.b.mem[inlineMax:4096])
	}
}

// The flags of the first record are the flags of the request. ID, opcode, keys and flags of the other
// records have no meaning.
func testGatherFirstRecord(r *fixture) {
	r.gatherable()
	fill(r.a.mem, 2)
	pieces := [][2]int{{100, 10}, {0, 20}, {500, 30}}
	r.receive(r.b.qp, numbered(0, 2)...)
	quiet := gathered(write(fabric.OpWriteImm, 1, r.a, r.b, 0), r.a, pieces...)
	loud := gathered(write(fabric.OpWriteImm, 2, r.a, r.b, 0), r.a, pieces...)
	quiet[0].Flags &^= fabric.Signaled
	loud[0].RemoteAddr += 100
	for i, w := range []fabric.SendWR{
		{ID: 77, Op: fabric.OpLocalInv, RKey: 1, Imm: 99, RemoteAddr: 1, Flags: fabric.Signaled | fabric.Inline},
		{ID: 78, Op: 200, RKey: 2, Flags: fabric.Signaled | fabric.Solicited | fabric.Fence},
	} {
		for _, wrs := range [][]fabric.SendWR{quiet, loud} {
			p := &wrs[i+1]
			p.ID, p.Op, p.RKey, p.Imm, p.RemoteAddr, p.Flags = w.ID, w.Op, w.RKey, w.Imm, w.RemoteAddr, p.Flags|w.Flags
		}
	}
	if !r.Traits.NoSolicited && !r.Traits.ArmsAny {
		r.check(r.b.recvCQ.Arm(true))
	}
	r.send(r.a.qp, quiet...)
	r.send(r.a.qp, loud...)
	r.sent(r.a, 2, 1) // the first request, which is not signaled, is complete by now
	c := r.spin(r.b.recvCQ, 2)
	r.writeImmOK(r.b.qp, c[0], 0, 1, 60)
	r.writeImmOK(r.b.qp, c[1], 1, 2, 60)
	r.noEvent(r.b.recvCQ)
	want := joined(r.a, pieces...)
	r.same(r.b.mem[:60], want)
	r.same(r.b.mem[100:160], want)
	r.none(r.a.sendCQ)
}

// An invalid request is rejected at its first record. The earlier requests of the same call are
// posted, and the connection remains usable.
func testGatherRefused(r *fixture) {
	r.gatherable()
	before := gathered(write(fabric.OpWrite, 1, r.a, r.b, 0), r.a, [2]int{0, 4}, [2]int{8, 4}, [2]int{16, 4})
	before = append(before, write(fabric.OpWrite, 2, r.a, r.b, 8))
	piece := [2]int{64, 8}
	pieces := make([][2]int, r.pieces+1)
	for i := range pieces {
		pieces[i] = [2]int{i, 1}
	}
	inline := gathered(write(fabric.OpWrite, 3, r.a, r.b, 0), r.a, [2]int{0, inlineMax}, [2]int{100, 1})
	inline[0].Flags |= fabric.Inline
	huge := gathered(write(fabric.OpWrite, 3, r.a, r.b, 0), r.a, piece, piece, piece)
	huge[0].Len, huge[1].Len = 1<<31, 1<<31
	unfinished := gathered(write(fabric.OpWrite, 3, r.a, r.b, 0), r.a, piece, piece)
	unfinished[1].Flags |= fabric.More
	lone := gathered(write(fabric.OpWriteImm, 3, r.a, r.b, 0), r.a, piece)
	lone[0].Flags |= fabric.More
	after := write(fabric.OpWrite, 4, r.a, r.b, 8)
	for _, c := range []struct {
		name string
		wrs  []fabric.SendWR
		last bool // no record may follow
	}{
		{"one piece too many", gathered(write(fabric.OpWrite, 3, r.a, r.b, 0), r.a, pieces...), false},
		{"inline data over the limit together", inline, false},
		{"more than 4 GiB together", huge, false},
		{"More on the last record", unfinished, true},
		{"More on the only record", lone, true},
		{"More with an opcode that has no data", gathered(fabric.SendWR{Op: fabric.OpLocalInv, ID: 3}, r.a, piece, piece),
			false},
		{"More with no opcode", gathered(fabric.SendWR{ID: 3}, r.a, piece, piece), false},
	} {
		wrs := slices.Concat(before, c.wrs)
		if !c.last {
			wrs = append(wrs, after)
		}
		r.rejects(r.a.qp, len(before), unix.EINVAL, c.name+", after good records", wrs...)
		r.sent(r.a, 1, 2)
		r.rejects(r.a.qp, 0, unix.EINVAL, c.name, c.wrs...)
		r.none(r.a.sendCQ)
	}
	r.works()
}

// A queue pair that was created without MaxSGE accepts only one piece.
func testGatherNotAskedFor(r *fixture) {
	r.severalPieces()
	r.pieces = 0 // which means 1
	r.connect(fabric.RC)
	wrs := append([]fabric.SendWR{write(fabric.OpWrite, 1, r.a, r.b, 8)},
		gathered(write(fabric.OpWrite, 2, r.a, r.b, 0), r.a, [2]int{0, 8}, [2]int{8, 8})...)
	r.rejects(r.a.qp, 1, unix.EINVAL, "two pieces on a queue pair for one, behind a plain request", wrs...)
	r.sent(r.a, 1, 1)
	r.works()
}

// If one piece may not be read, the request fails as if no piece could be read.
func testGatherAccess(r *fixture) {
	r.severalPieces()
	for _, bad := range []int{0, 1, 3} {
		for _, spoil := range []func(*fabric.SendWR){
			func(w *fabric.SendWR) { w.LKey ^= 0x5500 },
			func(w *fabric.SendWR) { w.Addr = r.a.region.Addr() + memSize - 4 },
		} {
			r.connect(fabric.RC)
			r.receive(r.b.qp, fabric.RecvWR{ID: 1})
			wrs := gathered(write(fabric.OpWriteImm, 5, r.a, r.b, 0), r.a, [2]int{0, 8}, [2]int{100, 8}, [2]int{200, 8},
				[2]int{300, 8})
			spoil(&wrs[bad])
			r.send(r.a.qp, wrs...)
			c := r.take(r.a.sendCQ, 1)[0]
			if c.ID != 5 || c.QPN != r.a.qp.Num() || c.Status != r.Traits.BadLKey && c.Status != r.Traits.BadLocal {
				r.Fatalf("piece %d is not readable, and the request completes with %q: %+v", bad, c.Status, c)
			}
			r.dead(r.a, r.b)
			r.reconnect(fabric.RC)
			r.works()
			r.hangUp()
		}
	}
}

// An invalidation has no data. With More it is rejected, and the window stays bound.
func testGatherInvalidation(r *fixture) {
	r.severalPieces()
	w := r.windows()
	key := r.bind(w)
	wrs := []fabric.SendWR{{ID: 1, Op: fabric.OpLocalInv, RKey: key, Flags: fabric.Signaled | fabric.More}, {}}
	for _, wrs := range [][]fabric.SendWR{wrs, wrs[:1]} {
		r.rejects(r.b.qp, 0, unix.EINVAL, "an invalidation with More", wrs...)
	}
	r.none(r.b.sendCQ)
	if s := r.through(key, 0); s != fabric.StatusSuccess || !w.Bound() {
		r.Fatalf("a write through the window completed with %q", s)
	}
	wrs[0].Flags = fabric.Signaled
	r.send(r.b.qp, wrs[:1]...)
	r.sent(r.b, 1, 1)
}

// The length of a message at the receiver is the total length of its pieces.
func testGatherTooLong(r *fixture) {
	r.gatherable()
	r.receive(r.b.qp, into(0, r.b, 0, 64), into(1, r.b, 0, 64))
	fits := write(fabric.OpSend, 0, r.a, r.b, 0)
	r.send(r.a.qp, gathered(fits, r.a, [2]int{0, 60}, [2]int{100, 4})...)
	r.received(r.b, 0, 1)
	r.sent(r.a, 0, 1)
	fits.ID = 1
	r.send(r.a.qp, gathered(fits, r.a, [2]int{0, 60}, [2]int{100, 5})...)
	r.all(r.a.qp, r.Traits.SendTooLong[0], 1, r.take(r.a.sendCQ, 1)...)
	r.all(r.b.qp, r.Traits.SendTooLong[1], 1, r.take(r.b.recvCQ, 1)...)
	r.untouched(r.b.mem[64:])
}

// The capacity of a send queue counts requests, not records. A post to a full queue is rejected
// at the first record of a request.
func testGatherQueueFull(r *fixture) {
	r.gatherable()
	fill(r.a.mem, 4)
	var wrs []fabric.SendWR
	for i := range 8 * depth {
		w := write(fabric.OpWriteImm, uint64(i), r.a, r.b, 0)
		wrs = append(wrs, gathered(w, r.a, [2]int{i, 5}, [2]int{1000 + i, 6}, [2]int{2000 + i, 7})...)
	}
	n, err := r.a.qp.PostSend(wrs)
	if !errors.Is(err, fabric.ErrQueueFull) || n%3 != 0 || n < 3*depth || n == len(wrs) {
		r.Fatalf("posting %d requests of 3 records to a queue of %d: %d records posted, %v", 8*depth, depth, n, err)
	}
	clear(wrs) // the records belong to the caller again
	requests := n / 3
	r.drain(requests, 18)
	last := requests - 1
	r.same(r.b.mem[:18], joined(r.a, [2]int{last, 5}, [2]int{1000 + last, 6}, [2]int{2000 + last, 7}))
	r.works()
}

// testGatherLoad posts batches of random requests, and checks every byte and every completion. Requests
// have one piece or several, are inline or not, and signaled or not. Some batches have an invalid
// request at the end.
func testGatherLoad(r *fixture) {
	r.gatherable()
	seed := rand.Uint64()
	defer func() {
		if r.Failed() {
			r.Logf("seed %d", seed)
		}
	}()
	rnd := rand.New(rand.NewPCG(seed, 1))
	fill(r.a.mem, int(seed%100))
	for round := range max(200/r.Scale, 10) {
		l := r.randomBatch(rnd, round)
		r.receive(r.b.qp, numbered(0, l.messages)...)
		n, err := r.a.qp.PostSend(l.wrs)
		switch {
		case l.refused < 0 && (err != nil || n != len(l.wrs)):
			r.Fatalf("round %d: %d of %d records posted: %v", round, n, len(l.wrs), err)
		case l.refused >= 0 && (!errors.Is(err, unix.EINVAL) || n != l.refused):
			r.Fatalf("round %d: %d records posted, want %d: %v", round, n, l.refused, err)
		}
		for i, c := range r.take(r.a.sendCQ, len(l.signaled)) {
			r.ok(r.a.qp, l.signaled[i], c)
		}
		for i, c := range r.take(r.b.recvCQ, l.messages) {
			r.writeImmOK(r.b.qp, c, uint64(i), l.imms[i], l.sizes[i])
		}
		r.same(r.b.mem[:len(l.want)], l.want)
	}
	r.none(r.a.sendCQ)
	r.none(r.b.recvCQ)
}

// load is a batch and its expected results.
type load struct {
	wrs      []fabric.SendWR
	refused  int // index of the record that must be rejected; -1: none
	signaled []uint64
	messages int // with immediate data
	imms     []uint32
	sizes    []int
	want     []byte // expected bytes from the start of the receiver's memory
}

// randomBatch makes requests that fill the receiver's memory from the start,
// without gaps. The last request that is not rejected is signaled.
func (r *fixture) randomBatch(rnd *rand.Rand, round int) load {
	l := load{refused: -1}
	for i := range 1 + rnd.IntN(depth/2) {
		op := fabric.OpWriteImm
		if rnd.IntN(4) == 0 {
			op = fabric.OpWrite
		}
		first := write(op, uint64(round<<8|i), r.a, r.b, 0)
		first.RemoteAddr += uint64(len(l.want))
		first.Flags = 0
		longest := 1500
		if rnd.IntN(3) == 0 {
			first.Flags, longest = fabric.Inline, min(inlineMax, r.a.qp.MaxInline())
		}
		pieces := make([][2]int, 1+rnd.IntN(r.pieces)*rnd.IntN(2))
		rest := rnd.IntN(longest + 1)
		for j := range pieces {
			n := rnd.IntN(rest + 1)
			if rest -= n; j == len(pieces)-1 {
				n += rest
			}
			pieces[j] = [2]int{rnd.IntN(memSize - n), n}
		}
		data := joined(r.a, pieces...)
		l.want = append(l.want, data...)
		wrs := gathered(first, r.a, pieces...)
		if rnd.IntN(4) == 0 {
			wrs[0].Flags |= fabric.Signaled
			l.signaled = append(l.signaled, first.ID)
		}
		if op == fabric.OpWriteImm {
			l.messages++
			l.imms, l.sizes = append(l.imms, first.Imm), append(l.sizes, len(data))
		}
		l.wrs = append(l.wrs, wrs...)
	}
	id := uint64(round<<8 | 0xff)
	last := write(fabric.OpWrite, id, r.a, r.b, 0)
	l.wrs, l.signaled = append(l.wrs, last), append(l.signaled, id)
	if rnd.IntN(3) == 0 {
		l.refused = len(l.wrs)
		bad := make([][2]int, r.pieces+1)
		l.wrs = append(l.wrs, gathered(last, r.a, bad...)...)
	}
	return l
}

// testGatherFrames gathers transfers from two to as many pieces as the device takes, as small frames in
// separate slots are in packs.
func testGatherFrames(r *fixture) {
	r.gatherable()
	for n := 2; n <= r.pieces; n++ {
		fill(r.a.mem, n)
		pieces := make([][2]int, n)
		for i := range pieces {
			pieces[i] = [2]int{(n - i) * 1024, 60 + i}
		}
		want := joined(r.a, pieces...)
		clear(r.b.mem)
		r.deliver(r.a, r.b, 1, gathered(write(fabric.OpWriteImm, uint64(n), r.a, r.b, 0), r.a, pieces...)...)
		r.same(r.b.mem[:len(want)], want)
		r.untouched(r.b.mem[len(want):])
	}
}

// testMaxSGE checks the MaxSGE limit of the device.
func testMaxSGE(r *fixture) {
	for _, e := range r.ends() {
		l := e.dev.Limits()
		if l.MaxSGE < 1 {
			r.Fatalf("%s takes %d pieces per request", e.dev.Name(), l.MaxSGE)
		}
		for _, n := range []int{-1, l.MaxSGE + 1} {
			if _, err := r.newQPWith(e, func(c *fabric.QPConfig) { c.MaxSGE = n }); !errors.Is(err, unix.EINVAL) {
				r.Fatalf("a queue pair for %d pieces, where the device takes up to %d: %v", n, l.MaxSGE, err)
			}
		}
		r.check(must(r.newQPWith(e, func(c *fabric.QPConfig) { c.MaxSGE = l.MaxSGE }))(r).Close())
	}
}

package conform

import (
	"slices"

	"github.com/splitnic/splitnic/fabric"
)

const windowSize = 4096

// windows connects the fixture. It skips the test if the device has no memory windows.
func (r *fixture) windows() fabric.Window {
	r.Helper()
	if has := r.b.dev.Limits().Windows; has == r.Traits.NoWindows {
		r.Fatalf("the device has type-2 memory windows: %v, and its traits say otherwise", has)
	}
	if r.Traits.NoWindows {
		r.Skipf("this device, or this kernel, has no type-2 memory windows")
	}
	if r.Traits.NoWindowAlloc && !r.anyRefusal {
		r.fails(failing(r.b.dom.NewWindow()), "allocating a window")
		r.Skipf("this device allocates no memory windows, although it says that it has some")
	}
	r.connect(fabric.RC)
	return must(r.b.dom.NewWindow())(r)
}

// binding is a bind of w to the start of b's region, for remote write.
func (r *fixture) binding(w fabric.Window, id uint64, f fabric.Flags) fabric.BindWR {
	return fabric.BindWR{
		ID: id, Window: w, Region: r.b.region, Addr: r.b.region.Addr(), Length: windowSize, Access: fabric.RemoteWrite,
		Flags: f,
	}
}

// bind binds w to the start of b's region and returns its key.
func (r *fixture) bind(w fabric.Window) uint32 {
	r.Helper()
	key := must(r.b.qp.Bind(r.binding(w, 77, fabric.Signaled)))(r)
	c := r.sent(r.b, 77, 1)
	if c[0].Op != fabric.OpBind || !w.Bound() || w.RKey() != key {
		r.Fatalf("bound with key %#x: completion %+v, window bound %v with key %#x", key, c[0], w.Bound(), w.RKey())
	}
	return key
}

// through writes 64 bytes of a to offset off of b's region with key, and returns the completion.
func (r *fixture) through(key uint32, off int) fabric.Status {
	r.Helper()
	w := shifted(write(fabric.OpWrite, 88, r.a, r.b, 64), 0, off)
	w.RKey = key
	r.send(r.a.qp, w)
	return r.take(r.a.sendCQ, 1)[0].Status
}

// passes checks that a write with key arrives, or at least is said to.
func (r *fixture) passes(what string, key uint32, off int) {
	r.Helper()
	if s := r.through(key, off); s != fabric.StatusSuccess {
		r.Fatalf("a write %s completed with %q", what, s)
	}
}

// unbind unbinds w and waits for the completion.
func (r *fixture) unbind(w fabric.Window) {
	r.Helper()
	r.check(r.b.qp.Unbind(w, 78, fabric.Signaled))
	r.sentAs(r.b, 78, fabric.OpLocalInv)
	if w.Bound() {
		r.Fatalf("the window is bound after Unbind")
	}
}

// refused checks that a write with key is rejected and writes nothing. The rejection ends the
// connection.
func (r *fixture) refused(why string, key uint32, off int) {
	r.Helper()
	clear(r.b.mem)
	fill(r.a.mem[:64], 5)
	if s := r.through(key, off); !r.isRefusal(s) {
		r.Fatalf("a write %s completed with %q", why, s)
	}
	r.untouched(r.b.mem)
	r.bothDead()
}

// isRefusal reports whether s is the status of a write that the other end has refused.
func (r *fixture) isRefusal(s fabric.Status) bool {
	return s == fabric.StatusRemAccessErr || r.anyRefusal && s != fabric.StatusSuccess
}

func testWindow(r *fixture) {
	w := r.windows()
	if w.Bound() {
		r.Fatalf("a new window is bound")
	}
	fill(r.a.mem[:64], 1)
	key := r.bind(w)
	r.passes("through the window", key, 100)
	r.same(r.b.mem[100:164], r.a.mem[:64])
	wr := write(fabric.OpWriteImm, 9, r.a, r.b, windowSize) // all of it
	wr.RKey = key
	r.deliver(r.a, r.b, 4, wr)
	r.unbind(w)
	// The key may be sent directly after the bind that creates it.
	key = must(r.b.qp.Bind(r.binding(w, 1, 0)))(r)
	r.receive(r.a.qp, fabric.RecvWR{ID: 6})
	r.send(r.b.qp, fabric.SendWR{ID: 2, Op: fabric.OpWriteImm, Flags: fabric.Signaled, Imm: key})
	r.writeImmOK(r.a.qp, r.take(r.a.recvCQ, 1)[0], 6, key, 0)
	r.passes("through a window just announced", key, 0)
	r.sent(r.b, 2, 1)
	r.check(w.Close())
}

// A bind and the message with its key are posted together, without waiting for the bind. The peer
// writes with the key when it has received it, and invalidates the key by a message.
func testWindowBindSend(r *fixture) {
	w := r.windows()
	r.receive(r.b.qp, numbered(1, 8)...)
	for i := range uint64(8) {
		r.receive(r.a.qp, fabric.RecvWR{ID: 10 + i})
		before := w.RKey()
		signaled := fabric.Flags(i%2) * fabric.Signaled // the bind
		key := must(r.b.qp.BindSend(r.binding(w, 20, signaled), 30+i, fabric.Signaled|fabric.Solicited))(r)
		if want := before&^0xff | (before+1)&0xff; key != want || w.RKey() != key || !w.Bound() {
			r.Fatalf("bound with key %#x after %#x; the window says %#x, bound %v", key, before, w.RKey(), w.Bound())
		}
		r.arrived(r.a.qp, r.take(r.a.recvCQ, 1)[0],
			fabric.Completion{ID: 10 + i, Op: fabric.OpRecv, Flags: fabric.WithImm, Imm: key})
		fill(r.a.mem[:64], int(i))
		r.passes("with the key that has come", key, 64)
		r.same(r.b.mem[64:128], r.a.mem[:64])
		if signaled != 0 {
			r.sentAs(r.b, 20, fabric.OpBind)
		}
		r.sentAs(r.b, 30+i, fabric.OpSend)
		if _, err := r.b.qp.BindSend(r.binding(w, 1, 0), 2, 0); err == nil || !w.Bound() ||
			w.RKey() != key {
			r.Fatalf("bound a window that was bound: %v", err)
		}
		r.send(r.a.qp, fabric.SendWR{ID: 40, Op: fabric.OpSendInv, Flags: fabric.Signaled, RKey: key})
		r.sent(r.a, 40, 1)
		r.arrived(r.b.qp, r.take(r.b.recvCQ, 1)[0],
			fabric.Completion{ID: 1 + i, Op: fabric.OpRecv, Flags: fabric.WithInv, InvKey: key})
		w.Invalidated()
	}
	r.none(r.a.recvCQ)
	r.none(r.b.sendCQ)
}

// If the device rejects a bind, the following message is flushed: the peer never receives an
// invalid key.
func testWindowBindSendFails(r *fixture) {
	w := r.windows()
	unbindable := must(r.b.dom.Register(Alloc(r, windowSize), fabric.LocalWrite))(r)
	r.receive(r.a.qp, fabric.RecvWR{ID: 1})
	b := r.binding(w, 7, 0)
	b.Region, b.Addr = unbindable, unbindable.Addr()
	must(r.b.qp.BindSend(b, 8, fabric.Signaled))(r)
	c := r.take(r.b.sendCQ, 2)
	r.all(r.b.qp, r.Traits.BadBind, 7, c[0])
	r.flushed(r.b.qp, 8, c[1])
	r.none(r.a.recvCQ)
	r.dead(r.b, r.a)
}

// A window grants the rights that its bind asks for, and no others: it is written to, or read, or
// both, through a bind alone and through one with a message.
func testWindowRights(r *fixture) {
	r.windows()
	for _, c := range []struct {
		access      fabric.Access
		write, read fabric.Status
	}{
		{fabric.RemoteWrite, fabric.StatusSuccess, fabric.StatusRemAccessErr},
		{fabric.RemoteRead, fabric.StatusRemAccessErr, fabric.StatusSuccess},
		{fabric.RemoteWrite | fabric.RemoteRead, fabric.StatusSuccess, fabric.StatusSuccess},
	} {
		for _, message := range []bool{false, true} {
			for _, reads := range []bool{false, true} {
				w := must(r.b.dom.NewWindow())(r)
				r.connectReading(1)
				b := r.binding(w, 1, fabric.Signaled)
				b.Access = c.access
				if message {
					r.receive(r.a.qp, fabric.RecvWR{ID: 3})
					must(r.b.qp.BindSend(b, 2, fabric.Signaled))(r)
					r.sent(r.b, 1, 2)
					r.received(r.a, 3, 1)
				} else {
					must(r.b.qp.Bind(b))(r)
					r.sent(r.b, 1, 1)
				}
				r.access(w.RKey(), reads, map[bool]fabric.Status{false: c.write, true: c.read}[reads])
				r.hangUp()
				r.check(w.Close())
			}
		}
	}
}

// access writes to b's region with a key, or reads from it, and checks the status, and the memory
// on both sides.
func (r *fixture) access(key uint32, reads bool, want fabric.Status) {
	r.Helper()
	const n = 64
	op, from, to := fabric.OpWrite, r.a.mem[:n], r.b.mem[:n]
	if reads {
		op, from, to = fabric.OpRead, r.b.mem[:n], r.a.mem[:n]
	}
	fill(from, 5)
	clear(to)
	wr := write(op, 88, r.a, r.b, n)
	wr.RKey = key
	r.send(r.a.qp, wr)
	if s := r.take(r.a.sendCQ, 1)[0].Status; s != want {
		r.Fatalf("operation %v completed with %q, want %q", op, s, want)
	}
	if want != fabric.StatusSuccess {
		r.untouched(to)
		return
	}
	r.same(to, from)
}

func testWindowStaleKey(r *fixture) {
	w := r.windows()
	var old []uint32
	for range 4 {
		key := r.bind(w)
		if slices.Contains(old, key) {
			r.Fatalf("key %#x was used before", key)
		}
		old = append(old, key)
		r.unbind(w)
	}
	r.bind(w)
	r.refused("with the key of an earlier bind", old[3], 0)
}

// Keys follow a rule, so that both sides of a connection can compute the next key.
func testWindowNextKey(r *fixture) {
	w := r.windows()
	before := w.RKey()
	for i := range 260 {
		key := r.bind(w)
		if want := before&^0xff | (before+1)&0xff; key != want || w.RKey() != key {
			r.Fatalf("bind %d: key %#x after %#x, want %#x; the window says %#x", i, key, before, want, w.RKey())
		}
		before = key
		if i%2 == 0 {
			r.unbind(w)
			continue
		}
		r.send(r.b.qp, fabric.SendWR{Op: fabric.OpLocalInv, RKey: key, ID: 5, Flags: fabric.Signaled})
		r.sent(r.b, 5, 1)
	}
}

func testWindowUnbound(r *fixture) {
	w := r.windows()
	key := r.bind(w)
	r.unbind(w)
	r.refused("through a window that was unbound", key, 0)
	r.reconnect(fabric.RC)
	key = r.bind(w)
	r.check(w.Close())
	r.refused("through a window that was closed", key, 0)
}

func testWindowOfOtherQP(r *fixture) {
	w := r.windows()
	key := r.bind(w)
	r.connect(fabric.RC) // a second pair; the first stays
	r.refused("through a window of another queue pair", key, 0)
}

// outsideWindow has offsets from the start of a window. 64 bytes at such an offset are not all
// in the window, but all are in its region.
var outsideWindow = []int{-64, -1, windowSize - 63, windowSize, 2 * windowSize}

// pastWindow writes across the ends of windows and returns the offsets that the device accepted.
// It checks that a rejected write changes no memory.
func (r *fixture) pastWindow() (taken []int) {
	r.Helper()
	w := r.windows()
	for _, off := range outsideWindow {
		b := r.binding(w, 0, fabric.Signaled)
		b.Addr += windowSize
		key := must(r.b.qp.Bind(b))(r)
		r.sent(r.b, 0, 1)
		r.passes("to the end of the window", key, 2*windowSize-64)
		clear(r.b.mem)
		fill(r.a.mem[:64], 5)
		switch s := r.through(key, windowSize+off); {
		case s == fabric.StatusSuccess:
			taken = append(taken, off)
			r.check(w.Close())
		case r.isRefusal(s):
			r.untouched(r.b.mem)
			r.bothDead()
			r.check(w.Close())
			r.reconnect(fabric.RC)
		default:
			r.Fatalf("a write over the window's bounds, %d bytes from its start, completed with %q", off, s)
		}
		w = must(r.b.dom.NewWindow())(r)
	}
	return taken
}

// A device that reports WindowBounds enforces the bounds at all offsets. A device that does not
// report WindowBounds must not enforce them, because users of Limits would do more than needed. Nor
// may one whose traits say so, which would be out of date.
func testWindowBounds(r *fixture) {
	taken, want := r.pastWindow(), outsideWindow
	if r.b.dev.Limits().WindowBounds && !r.Traits.UnboundedWindows {
		want = nil
	}
	if !slices.Equal(taken, want) {
		r.Fatalf("writes over a window's bounds were taken from %v, want %v: the limits say that bounds are enforced: %v",
			taken, want, r.b.dev.Limits().WindowBounds)
	}
}

func testWindowInvalidatedByPeer(r *fixture) {
	w := r.windows()
	key := r.bind(w)
	r.receive(r.b.qp, into(3, r.b, 8192, 64))
	fill(r.a.mem[:16], 2)
	wr := write(fabric.OpSendInv, 4, r.a, r.b, 16)
	wr.RKey = key
	r.send(r.a.qp, wr)
	r.arrived(r.b.qp, r.take(r.b.recvCQ, 1)[0],
		fabric.Completion{ID: 3, Op: fabric.OpRecv, Flags: fabric.WithInv, InvKey: key, Len: 16})
	r.sentAs(r.a, 4, fabric.OpSend)
	r.same(r.b.mem[8192:8192+16], r.a.mem[:16])
	if !w.Bound() {
		r.Fatalf("the window knows of the invalidation before it was told")
	}
	w.Invalidated()
	if w.Bound() {
		r.Fatalf("the window is bound after Invalidated")
	}
	w.Invalidated()
	r.fails(r.b.qp.Unbind(w, 0, 0), "unbinding a window that the peer has invalidated")
	r.refused("through a window that the peer has invalidated", key, 0)
	r.reconnect(fabric.RC)
	r.bind(w) // it can be used again
}

// Misuse is rejected before it reaches the device, and does no harm to the connection.
func testWindowMisuse(r *fixture) {
	w := r.windows()
	addr := r.b.region.Addr()
	bind := func(w fabric.Window, reg fabric.Region, addr uint64, n int) error {
		return failing(r.b.qp.Bind(fabric.BindWR{Window: w, Region: reg, Addr: addr, Length: n, Access: fabric.RemoteWrite}))
	}
	other := must(r.b.dev.NewDomain())(r)
	granting := func(a fabric.Access) error {
		b := r.binding(w, 0, 0)
		b.Access = a
		if failing(r.b.qp.Bind(b)) == nil {
			return nil
		}
		return failing(r.b.qp.BindSend(b, 1, 0))
	}
	foreign := must(other.Register(Alloc(r, 4096), fabric.LocalWrite|fabric.WindowBind))(r)
	stray := must(other.NewWindow())(r)
	r.fails(r.b.qp.Unbind(w, 0, 0), "unbinding a window that was never bound")
	for _, c := range []struct {
		name string
		err  error
	}{
		{"from before the region", bind(w, r.b.region, addr-1, 16)},
		{"over the region's end", bind(w, r.b.region, addr+memSize-8, 9)},
		{"behind the region", bind(w, r.b.region, addr+memSize, 1)},
		{"around the end of all addresses", bind(w, r.b.region, ^uint64(0), 2)},
		{"of no length", bind(w, r.b.region, addr, 0)},
		{"of negative length", bind(w, r.b.region, addr, -1)},
		{"to a region of another domain", bind(w, foreign, foreign.Addr(), 16)},
		{"of a window of another domain", bind(stray, r.b.region, addr, 16)},
		{"without rights", granting(0)},
		{"with a right that no window has", granting(fabric.RemoteWrite | fabric.WindowBind)},
	} {
		if c.err == nil {
			r.Errorf("a bind %s was taken", c.name)
		}
	}
	key := r.bind(w)
	r.fails(bind(w, r.b.region, addr, 16), "binding a window that is bound")
	r.passes("after refused binds", key, 0)
	r.check(r.b.qp.Unbind(w, 0, 0))
	r.fails(r.b.qp.Unbind(w, 0, 0), "unbinding a window twice")
	inv := fabric.SendWR{Op: fabric.OpLocalInv, RKey: key}
	r.rejects(r.b.qp, 0, nil, "invalidating a window twice, by a work request", inv)
	inv.RKey = r.bind(w)
	inv.ID, inv.Flags = 5, fabric.Signaled
	r.send(r.b.qp, inv)
	r.sent(r.b, 5, 1)
	if w.Bound() {
		r.Fatalf("the window is bound after its key was invalidated by a work request")
	}
	r.works()
}

func testWindowHoldsRegion(r *fixture) {
	w := r.windows()
	r.bind(w)
	r.fails(r.b.region.Close(), "deregistering a region with a window bound to it")
	r.unbind(w)
	r.check(r.b.region.Close())
	r.fails(failing(r.b.qp.Bind(r.binding(w, 0, 0))), "binding a window to a region that is closed")
	r.check(w.Close())
	r.check(w.Close())
}

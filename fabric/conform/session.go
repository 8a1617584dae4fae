package conform

import (
	"errors"

	"github.com/splitnic/splitnic/fabric"
)

// These properties are of the use that sessions make of a device, where drivers are known to differ.

// connectInline connects queue pairs with as much inline data as sessions ask for, and returns
// how much there is. It skips the trial if there is none.
func (r *fixture) connectInline() int {
	r.Helper()
	for _, e := range r.ends() {
		e.qp = must(r.newQPWith(e, func(c *fabric.QPConfig) { c.MaxInline = max(r.Inline, inlineMax) }))(r)
	}
	r.link(r.Timing)
	n := r.a.qp.MaxInline()
	if n == 0 {
		r.Skipf("there is none")
	}
	return n
}

// tryInline overwrites inline data as soon as it is posted, behind a write that keeps the queue
// pair busy. A driver that reads the memory later sends what was written afterwards.
func tryInline(r *fixture) {
	n := r.connectInline()
	const busy = 128 << 10
	for i := range 32 {
		fill(r.a.mem[:n], i)
		want := append([]byte(nil), r.a.mem[:n]...)
		pieces := [][2]int{{0, n}}
		if i%2 == 1 && r.pieces >= 4 && n >= 4 {
			pieces = [][2]int{{0, 1}, {1, n / 2}, {1 + n/2, 0}, {1 + n/2, n - 1 - n/2}}
		}
		inline := write(fabric.OpWriteImm, uint64(i), r.a, r.b, 0)
		inline.Flags |= fabric.Inline
		before := shifted(write(fabric.OpWrite, 0, r.a, r.b, busy), busy, busy)
		before.Flags = 0
		r.receive(r.b.qp, fabric.RecvWR{ID: uint64(i)})
		r.send(r.a.qp, append([]fabric.SendWR{before}, gathered(inline, r.a, pieces...)...)...)
		fill(r.a.mem[:n], i+100)
		r.writeImmOK(r.b.qp, r.take(r.b.recvCQ, 1)[0], uint64(i), uint32(i), n)
		r.sent(r.a, uint64(i), 1)
		r.same(r.b.mem[:n], want)
	}
}

// Writes without data, with and without immediate data, need neither address nor key, and keep their
// place between others, whether or not these are signaled.
func testEmptyWrite(r *fixture) {
	r.connect(fabric.RC)
	for i := range 16 {
		first := uint64(4 * i)
		r.receive(r.b.qp, numbered(first, 3)...)
		wrs := make([]fabric.SendWR, 4)
		for j := range wrs {
			wrs[j] = write(fabric.OpWriteImm, first+uint64(j), r.a, r.b, 64)
			wrs[j].Flags = 0
		}
		wrs[1] = fabric.SendWR{ID: first + 1, Op: fabric.OpWriteImm, Imm: uint32(first + 1)}
		wrs[3] = fabric.SendWR{ID: first + 3, Op: fabric.OpWrite, Flags: fabric.Signaled}
		r.send(r.a.qp, wrs...)
		for j, c := range r.take(r.b.recvCQ, 3) {
			r.writeImmOK(r.b.qp, c, first+uint64(j), uint32(first)+uint32(j), int(wrs[j].Len))
		}
		r.sent(r.a, first+3, 1)
	}
	r.none(r.a.sendCQ)
}

// testIndication writes on one connection and then, when the write has completed, sends a message on
// another one. The data must be there when the message is.
func testIndication(r *fixture) {
	const size = 64 << 10
	mem := Alloc(r, size) // not relaxed: each mode that sends such messages lends such memory
	region := must(r.b.dom.Register(mem, fabric.LocalWrite|fabric.RemoteWrite))(r)
	r.connect(fabric.RC)
	data := r.a.qp
	r.connect(fabric.RC)
	for i := range uint64(64) {
		fill(r.a.mem[:size], int(i))
		r.receive(r.b.qp, fabric.RecvWR{ID: 3})
		w := write(fabric.OpWrite, 1, r.a, r.b, size)
		w.RemoteAddr, w.RKey = region.Addr(), region.RKey()
		r.send(data, w)
		r.ok(data, 1, r.take(r.a.sendCQ, 1)...)
		r.send(r.a.qp, fabric.SendWR{ID: 2, Op: fabric.OpSend, Flags: fabric.Signaled})
		r.received(r.b, 3, 1)
		r.same(mem, r.a.mem[:size])
		r.sent(r.a, 2, 1)
	}
}

// tryFlush fails a queue pair. It returns what is missing of its flush: that all receives complete,
// that this raises an event, and that later requests are accepted and complete, too.
func tryFlush(r *fixture) string {
	r.connect(fabric.RC)
	r.works()
	const n = 10
	r.receive(r.a.qp, numbered(5, n)...)
	r.check(r.a.recvCQ.Arm(false))
	r.check(r.a.qp.Fail())
	ctx, cancel := r.context()
	defer cancel()
	quiet := r.a.recvCQ.Wait(ctx) != nil
	for _, c := range r.spin(r.a.recvCQ, n) {
		if c.Status == fabric.StatusSuccess {
			r.Fatalf("a receive of a failed queue pair has completed: %+v", c)
		}
	}
	_, err := r.a.qp.PostSend([]fabric.SendWR{write(fabric.OpWrite, 911, r.a, r.b, 8)})
	switch {
	case quiet:
		return "no event is raised"
	case err != nil:
		return "later requests are refused: " + err.Error()
	}
	if c := r.spin(r.a.sendCQ, 1)[0]; c.Status == fabric.StatusSuccess {
		r.Fatalf("a write of a failed queue pair has completed: %+v", c)
	}
	return ""
}

// tryReads skips the trial of RDMA reads if the device allows none.
func tryReads(r *fixture) {
	if a, b := r.a.dev.Limits(), r.b.dev.Limits(); a.MaxRdAtomic < 1 || b.MaxDestRdAtomic < 1 {
		r.Skipf("the device allows none")
	}
	testRead(r)
}

// tryModeration skips the trial of moderation if the device has none.
func tryModeration(r *fixture) {
	if !r.b.dev.Limits().Moderation {
		r.Skipf("the device has none")
	}
	testModeration(r)
}

// trySolicited arms a queue for solicited completions. It skips the trial if the driver cannot,
// and returns what is missing if others raise an event, too.
func trySolicited(r *fixture) string {
	if err := r.b.recvCQ.Arm(true); errors.Is(err, fabric.ErrUnsupported) {
		r.Skipf("the driver does not arm for them alone")
	}
	r.connect(fabric.RC)
	r.receive(r.b.qp, numbered(0, 1)...)
	r.check(r.b.recvCQ.Arm(true))
	r.message(0, 0)
	r.ok(r.b.qp, 0, r.spin(r.b.recvCQ, 1)...)
	if must(r.b.recvCQ.ReadEvent())(r) {
		return "others wake, too"
	}
	testEventSolicited(r)
	return ""
}

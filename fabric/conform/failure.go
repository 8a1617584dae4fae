package conform

import (
	"errors"

	"github.com/splitnic/splitnic/fabric"
)

func testFailFlushes(r *fixture) {
	r.connect(fabric.RC)
	r.works()
	r.receive(r.a.qp, numbered(5, 10)...)
	r.check(r.a.qp.Fail())
	r.check(r.a.qp.Fail())
	r.flushed(r.a.qp, 5, r.take(r.a.recvCQ, 10)...)
	r.dead(r.a, r.b)
	if r.Traits.StrictPosts {
		if n, err := r.a.qp.PostRecv(numbered(50, 3)); n != 0 || err == nil {
			r.Fatalf("a queue pair that has failed has taken receives: %d posted, %v", n, err)
		}
		return
	}
	if r.Traits.LateReceives {
		return
	}
	r.receive(r.a.qp, numbered(50, 3)...)
	r.flushed(r.a.qp, 50, r.take(r.a.recvCQ, 3)...)
}

// Sends that wait for a receiver are flushed too, before sends posted later, and errors.Is
// recognises their error.
func testFailFlushesWaiting(r *fixture) {
	r.connect(fabric.RC)
	for i := range 5 {
		w := write(fabric.OpWriteImm, uint64(i), r.a, r.b, 8)
		w.Flags = 0
		r.send(r.a.qp, w)
	}
	r.check(r.a.qp.Fail())
	n := 5
	if !r.Traits.StrictPosts {
		r.send(r.a.qp, write(fabric.OpWrite, 5, r.a, r.b, 8))
		n++
	}
	out := r.take(r.a.sendCQ, n)
	r.flushed(r.a.qp, 0, out...)
	if err := out[0].Err(); !errors.Is(err, &fabric.WCError{Status: fabric.StatusWRFlushErr}) {
		r.Fatalf("error of a flushed request: %v", err)
	}
	r.none(r.b.recvCQ)
}

// Failed reports the error state of a queue pair, whichever end caused the failure.
func testFailed(r *fixture) {
	state := func(qp fabric.QP, want bool) {
		r.Helper()
		if got := must(qp.Failed())(r); got != want {
			r.Fatalf("queue pair %#x is in the error state: %v, want %v", qp.Num(), got, want)
		}
	}
	r.connect(fabric.RC)
	if r.Traits.NoQuery {
		if _, err := r.a.qp.Failed(); !errors.Is(err, fabric.ErrUnsupported) {
			r.Fatalf("asked for the state on a device that cannot tell: %v", err)
		}
		r.Skipf("this device does not tell the state of queue pairs")
	}
	state(r.a.qp, false)
	r.works()
	state(r.a.qp, false)
	r.check(r.b.qp.Fail())
	state(r.b.qp, true)
	r.reconnect(fabric.RC)
	state(r.b.qp, false)
	w := write(fabric.OpWrite, 1, r.a, r.b, 8)
	w.RKey ^= 0x5500
	r.send(r.a.qp, w)
	r.take(r.a.sendCQ, 1)
	state(r.a.qp, true)
	r.dead(r.b, r.a)
	state(r.b.qp, true)
}

// impatient returns timing with which a dead peer is detected soon, but not a live peer that
// gets little processor time on a busy machine.
func (r *fixture) impatient() fabric.Timing {
	t := r.Timing.WithDefaults()
	t.Timeout++
	t.RetryCount = 2
	return t
}

// A missing peer is detected by the next message, and only by a message.
func testPeerDeath(r *fixture) {
	t := r.impatient()
	for _, op := range []fabric.Opcode{fabric.OpWrite, fabric.OpWriteImm} {
		r.connectWith(fabric.RC, t)
		r.works()
		r.receive(r.a.qp, numbered(1, 2)...)
		r.check(r.b.qp.Close())
		r.none(r.a.sendCQ)
		r.send(r.a.qp, write(op, 1, r.a, r.b, 8), write(op, 2, r.a, r.b, 8))
		c := r.take(r.a.sendCQ, 2)
		r.all(r.a.qp, fabric.StatusRetryExcErr, 1, c[0])
		r.flushed(r.a.qp, 2, c[1])
		r.flushed(r.a.qp, 1, r.take(r.a.recvCQ, 2)...)
		r.check(r.a.qp.Close())
	}
}

// A peer in the error state does not answer either, even if it entered the error state while
// messages were waiting for it.
func testPeerFailed(r *fixture) {
	t := r.impatient()
	r.connectWith(fabric.RC, t)
	r.send(r.a.qp, write(fabric.OpWriteImm, 1, r.a, r.b, 8))
	r.check(r.b.qp.Fail())
	r.all(r.a.qp, fabric.StatusRetryExcErr, 1, r.take(r.a.sendCQ, 1)...)
	r.dead(r.a, r.b)
}

// The sender of a rejected request gets the error even if the other end fails its queue pair
// as soon as it sees the failure. Some devices lose the answer in this case.
func testRefusedFailed(r *fixture) {
	lost := 0
	for range 64 / r.Scale {
		r.connectWith(fabric.RC, r.impatient())
		r.receive(r.b.qp, numbered(1, 2)...)
		w := write(fabric.OpWriteImm, 1, r.a, r.b, 8)
		w.RKey ^= 1
		r.send(r.a.qp, w)
		first := r.spin(r.b.recvCQ, 1)
		r.check(r.b.qp.Fail())
		r.all(r.b.qp, r.Traits.RefusedWriteImm, 1, first...)
		if c := r.take(r.a.sendCQ, 1)[0]; r.Traits.Lost(c.Status) {
			lost++
		} else {
			r.all(r.a.qp, fabric.StatusRemAccessErr, 1, c)
		}
		r.untouched(r.b.mem)
		r.flushed(r.b.qp, 2, r.take(r.b.recvCQ, 1)...)
		r.hangUp()
	}
	r.Logf("%d refusals lost", lost)
}

// bothDead checks that both queue pairs are in the error state.
func (r *fixture) bothDead() {
	r.Helper()
	r.dead(r.a, r.b)
	r.dead(r.b, r.a)
}

// dead checks that e's queue pair is in the error state.
func (r *fixture) dead(e *end, peer *end) {
	r.Helper()
	two := []fabric.SendWR{write(fabric.OpWrite, 911, e, peer, 8), write(fabric.OpWrite, 912, e, peer, 8)}
	n, err := e.qp.PostSend(two)
	switch {
	case err != nil && n == 0 && (r.Traits.StrictPosts || r.anyRefusal):
		return
	case err != nil || n != 2:
		r.Fatalf("a queue pair that should have failed has taken %d of 2 writes: %v", n, err)
	}
	r.failed(e.qp, fabric.StatusWRFlushErr, 911, r.take(e.sendCQ, 2)...)
}

package conform

import (
	"context"
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
)

// wait consumes an event, and fails the test if there is none.
func (r *fixture) wait(cq fabric.CQ) {
	r.Helper()
	ctx, cancel := r.context()
	defer cancel()
	r.check(cq.Wait(ctx))
}

// noEvent checks that no event is pending.
func (r *fixture) noEvent(cq fabric.CQ) {
	r.Helper()
	if ok, err := cq.ReadEvent(); ok || err != nil {
		r.Fatalf("an event that should not be: %v, %v", ok, err)
	}
}

// message sends an empty message from a to b and waits until the send has completed.
func (r *fixture) message(id uint64, f fabric.Flags) {
	r.Helper()
	r.send(r.a.qp, fabric.SendWR{ID: id, Op: fabric.OpWriteImm, Flags: f | fabric.Signaled, Imm: uint32(id)})
	r.ok(r.a.qp, id, r.spin(r.a.sendCQ, 1)...)
}

// An unarmed CQ raises no event. An armed CQ raises one event for any number of completions.
func testEventOnce(r *fixture) {
	r.connect(fabric.RC)
	r.receive(r.b.qp, numbered(0, 8)...)
	r.message(0, fabric.Solicited)
	r.noEvent(r.b.recvCQ)
	r.spin(r.b.recvCQ, 1)
	r.check(r.b.recvCQ.Arm(false))
	r.noEvent(r.b.recvCQ)
	r.message(1, 0)
	r.message(2, 0)
	r.wait(r.b.recvCQ)
	r.spin(r.b.recvCQ, 2)
	r.message(3, fabric.Solicited)
	r.spin(r.b.recvCQ, 1)
	r.noEvent(r.b.recvCQ)
	for i := uint64(4); i < 8; i++ { // several times
		r.check(r.b.recvCQ.Arm(false))
		r.message(i, 0)
		r.wait(r.b.recvCQ)
		r.noEvent(r.b.recvCQ)
		r.ok(r.b.qp, i, r.spin(r.b.recvCQ, 1)...)
	}
}

func testEventNotForQueued(r *fixture) {
	r.connect(fabric.RC)
	r.receive(r.b.qp, numbered(0, 3)...)
	r.message(0, fabric.Solicited)
	r.check(r.b.recvCQ.Arm(false))
	r.noEvent(r.b.recvCQ)
	r.ok(r.b.qp, 0, r.spin(r.b.recvCQ, 1)...) // polling after arming finds it
	r.noEvent(r.b.recvCQ)
	r.message(1, 0) // the next completion raises the event
	r.wait(r.b.recvCQ)
	r.ok(r.b.qp, 1, r.spin(r.b.recvCQ, 1)...)
}

// armSolicited arms cq for solicited completions only. It skips the test on a device that cannot.
func (r *fixture) armSolicited(cq fabric.CQ) {
	r.Helper()
	err := cq.Arm(true)
	if !r.Traits.NoSolicited {
		r.check(err)
		return
	}
	if !errors.Is(err, fabric.ErrUnsupported) {
		r.Fatalf("armed for solicited completions on a device that cannot: %v", err)
	}
	r.Skipf("this device does not arm for solicited completions")
}

func testEventSolicited(r *fixture) {
	r.connect(fabric.RC)
	r.receive(r.b.qp, numbered(0, 6)...)
	r.armSolicited(r.b.recvCQ)
	r.message(0, 0)
	r.message(1, 0)
	if r.Traits.ArmsAny {
		r.wait(r.b.recvCQ)
		r.noEvent(r.b.recvCQ) // one for both
		return
	}
	r.noEvent(r.b.recvCQ)
	r.message(2, fabric.Solicited)
	r.wait(r.b.recvCQ)
	r.ok(r.b.qp, 0, r.spin(r.b.recvCQ, 3)...)

	r.check(r.b.recvCQ.Arm(true))
	r.check(r.b.recvCQ.Arm(false)) // for any completion
	r.message(3, 0)
	r.wait(r.b.recvCQ)

	r.check(r.b.recvCQ.Arm(true))
	r.receive(r.b.qp, into(6, r.b, 0, 8))
	r.message(4, 0)
	r.message(5, 0)
	r.noEvent(r.b.recvCQ)
	r.send(r.a.qp, fabric.SendWR{Op: fabric.OpSend, Flags: fabric.Solicited})
	r.wait(r.b.recvCQ)
	r.ok(r.b.qp, 3, r.spin(r.b.recvCQ, 4)...)
}

// Every completion vector raises the events of its queues.
func testEventVectors(r *fixture) {
	for v := range max(r.b.dev.Limits().CompVectors, 1) {
		cq := must(r.b.dom.NewCQ(depth, v))(r)
		r.a.qp = r.newQP(r.a, fabric.RC)
		r.b.qp = must(r.newQPWith(r.b, func(c *fabric.QPConfig) { c.RecvCQ = cq }))(r)
		r.link(r.Timing)
		id := uint64(v)
		r.receive(r.b.qp, fabric.RecvWR{ID: id})
		r.check(cq.Arm(false))
		r.message(id, 0)
		r.wait(cq)
		r.ok(r.b.qp, id, r.spin(cq, 1)...)
		r.hangUp()
		r.check(cq.Close())
	}
}

// A failed completion raises an event on a CQ that is armed for solicited completions.
func testEventFailure(r *fixture) {
	r.eventFlush(r.armSolicited, r.Traits.QuietFlushes && !r.Traits.ArmsAny, r.Traits.QuietFailures)
}

// A failed completion raises an event on a CQ that is armed for any completion, and so does the
// completion of a request posted to a failed queue pair.
func testEventFlush(r *fixture) {
	r.eventFlush(func(cq fabric.CQ) { r.check(cq.Arm(false)) }, false, false)
}

// eventFlush expects one event of receives that are flushed, unless they are quiet, and one of a send that
// is posted afterwards, unless it is.
func (r *fixture) eventFlush(arm func(fabric.CQ), quietReceives, quietSend bool) {
	r.Helper()
	r.connect(fabric.RC)
	r.receive(r.b.qp, numbered(0, 2)...)
	arm(r.b.recvCQ)
	r.check(r.b.qp.Fail())
	if !quietReceives && !r.Traits.SilentFlushes {
		r.wait(r.b.recvCQ)
	}
	r.flushed(r.b.qp, 0, r.spin(r.b.recvCQ, 2)...)
	r.noEvent(r.b.recvCQ) // otherwise the traits are out of date
	if quietSend || r.Traits.StrictPosts || r.Traits.SilentFlushes {
		return
	}
	arm(r.b.sendCQ)
	r.send(r.b.qp, write(fabric.OpWrite, 1, r.b, r.a, 8))
	r.wait(r.b.sendCQ)
	r.flushed(r.b.qp, 1, r.spin(r.b.sendCQ, 1)...)
}

// readable reports whether poll(2) finds cq's descriptor readable within d.
func (r *fixture) readable(cq fabric.CQ, d time.Duration) bool {
	r.Helper()
	fds := []unix.PollFd{{Fd: int32(cq.FD()), Events: unix.POLLIN}}
	for end := time.Now().Add(d); ; {
		n, err := unix.Poll(fds, int(max(time.Until(end), 0).Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			r.Fatalf("poll(2) on the completion queue: %v", err)
		default:
			return n == 1 && fds[0].Revents&unix.POLLIN != 0
		}
	}
}

func testEventFD(r *fixture) {
	r.connect(fabric.RC)
	r.receive(r.b.qp, numbered(0, 3)...)
	cq := r.b.recvCQ
	for i := range uint64(3) {
		if r.readable(cq, 0) {
			r.Fatalf("readable without an event")
		}
		r.check(cq.Arm(false))
		r.message(i, 0)
		if !r.readable(cq, r.Patience) {
			r.Fatalf("not readable though an event is pending")
		}
		if !r.readable(cq, 0) {
			r.Fatalf("looking has consumed the event")
		}
		if ok, err := cq.ReadEvent(); !ok || err != nil {
			r.Fatalf("the pending event was not read: %v, %v", ok, err)
		}
		r.noEvent(cq)
		r.ok(r.b.qp, i, r.spin(cq, 1)...)
	}
	if r.readable(cq, 0) {
		r.Fatalf("readable after the last event was consumed")
	}
}

// Wait ends when its context does, and loses no event.
func testWaitContext(r *fixture) {
	r.connect(fabric.RC)
	r.receive(r.b.qp, numbered(0, 3)...)
	cq := r.b.recvCQ
	done, cancel := context.WithCancel(context.Background())
	cancel()
	if err := cq.Wait(done); !errors.Is(err, context.Canceled) {
		r.Fatalf("waiting with a context that is done: %v", err)
	}
	soon, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	if err := cq.Wait(soon); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, net.ErrClosed) {
		r.Fatalf("waiting past the deadline: %v", err)
	}
	later, cancel := context.WithCancel(context.Background())
	r.check(cq.Arm(false))
	r.together(
		func() error {
			if err := cq.Wait(later); !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		},
		func() error { cancel(); return nil },
	)
	r.message(0, 0)
	r.wait(cq)
	r.ok(r.b.qp, 0, r.spin(cq, 1)...)
}

// Wait sleeps in one goroutine while another one causes the completion.
func testWaitWakes(r *fixture) {
	r.connect(fabric.RC)
	for i := range uint64(100 / min(r.Scale, 10)) {
		r.receive(r.b.qp, fabric.RecvWR{ID: i})
		r.check(r.b.recvCQ.Arm(i%2 == 0 && !r.Traits.NoSolicited))
		ctx, cancel := r.context()
		r.together(
			func() error { return r.b.recvCQ.Wait(ctx) },
			func() error {
				return failing(r.a.qp.PostSend([]fabric.SendWR{{ID: i, Op: fabric.OpWriteImm,
					Flags: fabric.Signaled | fabric.Solicited}}))
			},
		)
		cancel()
		r.ok(r.b.qp, i, r.spin(r.b.recvCQ, 1)...)
		r.sent(r.a, i, 1)
	}
}

func testWaitClosed(r *fixture) {
	ctx, cancel := r.context()
	defer cancel()
	r.together(
		func() error {
			if err := r.a.recvCQ.Wait(ctx); !errors.Is(err, net.ErrClosed) {
				return errors.Join(errors.New("sleeping on a queue that is closed"), err)
			}
			return nil
		},
		r.a.recvCQ.Close,
	)
}

package directed

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
)

// strict makes the ground of devices that refuse to post on a queue pair that has failed.
func strict(t *testing.T) *ground {
	return grounded(t, fabrictest.New(fabrictest.WithAdapter(fabrictest.Adapter{StrictPosts: unix.EINVAL})))
}

// heldDevice is a device whose completion queues for receives keep their completions while they are
// held. Its queue pairs report the posts that were refused.
type heldDevice struct {
	fabric.Device
	refused chan struct{}

	mu     sync.Mutex
	held   bool
	change sync.Cond
}

func newHeldDevice(d fabric.Device) *heldDevice {
	h := &heldDevice{Device: d, refused: make(chan struct{}, 1)}
	h.change.L = &h.mu
	return h
}

func (d *heldDevice) hold(hold bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held = hold
	d.change.Broadcast()
}

// NewDomain implements fabric.Device.
func (d *heldDevice) NewDomain() (fabric.Domain, error) {
	dom, err := d.Device.NewDomain()
	return heldDomain{dom, d}, err
}

type heldDomain struct {
	fabric.Domain
	d *heldDevice
}

// NewCQ implements fabric.Domain.
func (m heldDomain) NewCQ(depth, vector int) (fabric.CQ, error) {
	cq, err := m.Domain.NewCQ(depth, vector)
	return &heldCQ{cq, m.d, depth == linkReceives}, err
}

// NewQP implements fabric.Domain.
func (m heldDomain) NewQP(c fabric.QPConfig) (fabric.QP, error) {
	c.SendCQ, c.RecvCQ = c.SendCQ.(*heldCQ).CQ, c.RecvCQ.(*heldCQ).CQ
	qp, err := m.Domain.NewQP(c)
	return heldQP{qp, m.d}, err
}

type heldCQ struct {
	fabric.CQ
	d        *heldDevice
	receives bool
}

// Poll implements fabric.CQ.
func (c *heldCQ) Poll(out []fabric.Completion) (int, error) {
	if c.receives {
		c.d.mu.Lock()
		for c.d.held {
			c.d.change.Wait()
		}
		c.d.mu.Unlock()
	}
	return c.CQ.Poll(out)
}

type heldQP struct {
	fabric.QP
	d *heldDevice
}

// PostSend implements fabric.QP.
func (q heldQP) PostSend(wrs []fabric.SendWR) (int, error) {
	n, err := q.QP.PostSend(wrs)
	if err != nil {
		select {
		case q.d.refused <- struct{}{}:
		default:
		}
	}
	return n, err
}

// failed waits until a queue pair has failed.
func (r *fixture) failed(qp fabric.QP) {
	r.Helper()
	testenv.Eventually(r.T, func() bool {
		failed, err := qp.Failed()
		return failed && err == nil
	}, "a queue pair that has failed")
}

// holding returns a fixture whose requester has such a device, which looks for the cause of a refused
// post for a time.
func holding(t *testing.T, look time.Duration) (*fixture, *heldDevice) {
	var held *heldDevice
	r := newFixture(t, strict, func(side int, c *Config) {
		if side == requesterSide {
			held = newHeldDevice(c.Device)
			c.Device, c.look = held, look
		}
	})
	t.Cleanup(func() { held.hold(false) })
	return r, held
}

// ask has the requester make a request, and returns a channel for the result.
func (r *fixture) ask() <-chan error {
	r.Helper()
	return r.askFor(r.Context())
}

func (r *fixture) askFor(ctx context.Context) <-chan error {
	r.Helper()
	_, m := r.memory(r.toOwner, 64, Result)
	list := []protocol.ListElement{{Fragment: m.Fragment(0, 64), EndOfBuffer: true}}
	done := make(chan error, 1)
	go func() { done <- r.toOwner.Do(ctx, one(protocol.DirectedRead, tapeDevice, 0, list)) }()
	return done
}

// TestStrictPosts revokes a part of the memory of a request, on devices that refuse to post on a
// queue pair that has failed: also the requests behind the first that fails. The reply has to say
// what has failed.
func TestStrictPosts(t *testing.T) {
	r := newFixture(t, strict)
	_, a := r.memory(r.toOwner, 4096, Result)
	_, b := r.memory(r.toOwner, 4096, Result)
	gone := b.Fragment(0, 4096)
	r.check(b.Close())
	list := []protocol.ListElement{
		{Fragment: a.Fragment(0, 2048)}, {Fragment: gone},
		{Fragment: a.Fragment(2048, 1024)}, {Fragment: a.Fragment(3072, 1024), EndOfBuffer: true},
	}
	read := one(protocol.DirectedRead, tapeDevice, 0, list)
	r.status(r.toOwner.Do(t.Context(), read), protocol.DirectedAccess)
	list[1].Fragment = a.Fragment(0, 2048) // a connection again
	r.status(r.toOwner.Do(t.Context(), read), protocol.DirectedOK)
}

// TestRefusedPostOfLink has a message fail at its receiver, whose next message is refused before it
// has seen why. The link has to end for the failure.
func TestRefusedPostOfLink(t *testing.T) {
	r, held := holding(t, time.Hour)
	held.hold(true)
	_, err := r.requester.qp.PostSend([]fabric.SendWR{{
		Op: fabric.OpSend, Addr: r.requester.mem.Addr(), Len: protocol.MaxControlSize + 1, LKey: r.requester.mem.LKey(),
	}})
	r.check(err)
	r.failed(r.toOwner.qp)
	done := r.ask()
	select {
	case <-held.refused:
	case err := <-done:
		t.Fatalf("the request ended with %v", err)
	}
	held.hold(false)
	want := &fabric.WCError{Status: fabric.StatusLocLenErr}
	if err := <-done; !errors.Is(err, want) || !errors.Is(r.toOwner.Err(), want) {
		t.Errorf("%v; the link ended with %v", err, r.toOwner.Err())
	}
}

// TestRefusedReceiveOfLink fails the queue pair of a link after the answer to a request has arrived,
// and before it is seen, so that the receive for the next message is refused. The answer counts, and
// the link ends for a flush.
func TestRefusedReceiveOfLink(t *testing.T) {
	r, held := holding(t, 0)
	done := r.ask() // also a connect message and its answer
	r.check(<-done)
	before := r.network.Counters("requester").Recvs
	held.hold(true)
	done = r.ask()
	testenv.Eventually(t, func() bool { return r.network.Counters("requester").Recvs == before+1 }, "an answer")
	r.check(r.toOwner.qp.Fail())
	held.hold(false)
	if err := <-done; err != nil {
		t.Errorf("the answer is lost: %v", err)
	}
	<-r.toOwner.ctx.Done()
	if err := r.toOwner.Err(); !errors.Is(err, &fabric.WCError{Status: fabric.StatusWRFlushErr}) {
		t.Errorf("the link ended with %v", err)
	}
}

// TestRefusalCountsAsFlush refuses a post on a queue pair that has failed without a completion that
// says why. A post that is refused for another reason is no flush.
func TestRefusalCountsAsFlush(t *testing.T) {
	flush, no := &fabric.WCError{Status: fabric.StatusWRFlushErr}, errors.New("no")
	r := newFixture(t, strict)
	for _, fails := range []bool{false, true} {
		if fails {
			r.check(r.toOwner.qp.Fail())
		}
		err := causeOf(context.Background(), fabric.Refused(r.toOwner.qp, no), r.toOwner.qp, r.toOwner.send, time.Millisecond)
		if !errors.Is(err, no) || errors.Is(err, flush) != fails {
			t.Errorf("queue pair failed %t: %v", fails, err)
		}
	}
}

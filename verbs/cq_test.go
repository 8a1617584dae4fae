//go:build cgo

package verbs_test

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
)

func writeImm(a, b *end, f fabric.Flags) fabric.SendWR {
	return fabric.SendWR{
		Op: fabric.OpWriteImm, Flags: f, Addr: a.mr.Addr(), Len: 8, LKey: a.mr.LKey(), RemoteAddr: b.mr.Addr(),
		RKey: b.mr.RKey(),
	}
}

func TestRDMAEventByPoll(t *testing.T) {
	a, b := newPair(t, fabric.RC)
	postRecv(t, b.qp, make([]fabric.RecvWR, 4)...)
	if testenv.Readable(t, b.recvCQ.FD(), 0) {
		t.Fatal("readable before it was armed")
	}
	check(t, b.recvCQ.Arm(false))
	if ok := must(b.recvCQ.ReadEvent())(t); ok {
		t.Fatal("an event without a completion")
	}
	postSend(t, a.qp, writeImm(a, b, 0))
	if !testenv.Readable(t, b.recvCQ.FD(), 20*time.Second) {
		t.Fatal("no event")
	}
	if ok := must(b.recvCQ.ReadEvent())(t); !ok {
		t.Fatal("readable, but no event")
	}
	pollOK(t, b.recvCQ, 1)
	if testenv.Readable(t, b.recvCQ.FD(), 0) {
		t.Fatal("still readable after the event was read")
	}
}

// TestRDMASolicitedOnly arms a completion queue for solicited completions only. It expects an event
// for a solicited completion, and none for an unsolicited one. The connection is ordered, so an
// event for the unsolicited completion would exist when the write has completed.
func TestRDMASolicitedOnly(t *testing.T) {
	a, b := newPair(t, fabric.RC)
	postRecv(t, b.qp, make([]fabric.RecvWR, 4)...)
	check(t, b.recvCQ.Arm(true))
	postSend(t, a.qp, writeImm(a, b, fabric.Signaled))
	pollOK(t, a.sendCQ, 1)
	pollOK(t, b.recvCQ, 1)
	if ok := must(b.recvCQ.ReadEvent())(t); ok {
		t.Fatal("an event for an unsolicited completion")
	}
	postSend(t, a.qp, writeImm(a, b, fabric.Solicited))
	check(t, b.recvCQ.Wait(testContext(t)))
	pollOK(t, b.recvCQ, 1)
}

func TestRDMAWait(t *testing.T) {
	a, b := newPair(t, fabric.RC)
	postRecv(t, b.qp, make([]fabric.RecvWR, 8)...)
	ctx := testContext(t)
	for range 3 {
		check(t, b.recvCQ.Arm(false))
		done := make(chan error, 1)
		go func() { done <- b.recvCQ.Wait(ctx) }()
		postSend(t, a.qp, writeImm(a, b, 0))
		check(t, <-done)
		pollOK(t, b.recvCQ, 1)
	}

	check(t, b.recvCQ.Arm(false))
	cancelled, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.recvCQ.Wait(cancelled) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled wait: %v", err)
	}
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if err := b.recvCQ.Wait(short); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrClosed) {
		t.Fatalf("wait past its deadline: %v", err)
	}

	// The cancelled waits must not have consumed an event, and the queue must still be armed.
	postSend(t, a.qp, writeImm(a, b, 0))
	check(t, b.recvCQ.Wait(ctx))
	pollOK(t, b.recvCQ, 1)
}

func TestRDMACloseWakesWaiter(t *testing.T) {
	_, b := newPair(t, fabric.RC)
	done := make(chan error, 1)
	go func() { done <- b.recvCQ.Wait(context.Background()) }()
	check(t, b.recvCQ.Close())
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Fatalf("wait on a closed queue: %v", err)
	}
}

func TestRDMACQLimits(t *testing.T) {
	c := openDevice(t, 0)
	d := must(c.NewDomain())(t)
	l := c.Limits()
	for _, x := range [][2]int{{0, 0}, {-1, 0}, {l.MaxCQE + 1, 0}, {16, l.CompVectors}, {16, -1}} {
		if _, err := d.NewCQ(x[0], x[1]); !errors.Is(err, unix.EINVAL) {
			t.Errorf("queue of %d entries on vector %d: %v", x[0], x[1], err)
		}
	}
	for v := range l.CompVectors {
		check(t, must(d.NewCQ(16, v))(t).Close())
	}
}

package messaging

import (
	"math"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/protocol"
)

// endlessCQ is a completion queue that is never empty: Poll always fills out.
type endlessCQ struct{ fabric.CQ }

func (endlessCQ) Poll(out []fabric.Completion) (int, error) {
	for i := range out {
		out[i] = fabric.Completion{Op: fabric.OpRecv, Len: protocol.SendDataOverhead + 1}
	}
	return len(out), nil
}

// bottomlessQP is a queue pair that accepts any number of receives.
type bottomlessQP struct{ fabric.QP }

func (bottomlessQP) PostRecv(wrs []fabric.RecvWR) (int, error) { return len(wrs), nil }

func floodedConn(t *testing.T) *Conn {
	t.Helper()
	dev := fabrictest.New().Device("a")
	t.Cleanup(func() { dev.Close() })
	c, err := New(Config{Device: dev, Mode: protocol.ModeSendUC})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestMailInAFlood reads the queue of a receiver while the peer sends messages without end.
// The messages are late and cost the peer no credit. Reading the queue must end.
func TestMailInAFlood(t *testing.T) {
	c := floodedConn(t)
	ch := c.channels[0]
	ch.recvCQ, ch.qp = endlessCQ{ch.recvCQ}, bottomlessQP{ch.qp}
	late := (*ch.rx.local.Load())[0].Element(0)
	protocol.PutSendData(late, math.MaxUint64, 1)
	// If readQueue does not return, the test times out.
	if err := ch.rx.readQueue(); err != nil {
		t.Error(err)
	}
	if n := ch.rx.count.RxLate.Load(); n < uint64(c.cfg.receives()) {
		t.Errorf("%d messages were taken, fewer than can have come before the event", n)
	}
}

// TestReceiverWaitsOnce has a receiver try several times to send an update while no control
// slot is free. It must be notified once when a slot becomes free.
func TestReceiverWaitsOnce(t *testing.T) {
	c := floodedConn(t)
	c.control.free = c.control.free[:protocol.OtherControl]
	for range 3 {
		if sent, err := c.control.trySend(&c.channels[0].rx.queue, c.channels[0].rx.update); sent || err != nil {
			t.Fatalf("sent %t, %v", sent, err)
		}
	}
	if n := len(c.control.blocked); n != 1 {
		t.Errorf("one receiver waits %d times", n)
	}
	c.control.release(0)
	if n := c.channels[0].rx.queue.len(); n != 1 || len(c.control.blocked) != 0 {
		t.Errorf("the receiver heard %d times that there is a slot", n)
	}
}

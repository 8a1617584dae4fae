package messaging

import (
	"math"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/protocol"
)

// endlessCQ always has as many completions as fit.
type endlessCQ struct{ fabric.CQ }

func (endlessCQ) Poll(out []fabric.Completion) (int, error) {
	for i := range out {
		out[i] = fabric.Completion{Op: fabric.OpRecv, Len: protocol.SendDataOverhead + 1}
	}
	return len(out), nil
}

// bottomlessQP takes any number of receives.
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

// TestMailInAFlood reads the queue while the peer never stops to send messages, which
// come late and cost it no credit.
func TestMailInAFlood(t *testing.T) {
	c := floodedConn(t)
	ch := c.channels[0]
	ch.recvCQ, ch.qp = endlessCQ{ch.recvCQ}, bottomlessQP{ch.qp}
	late := (*ch.rx.local.Load())[0].Element(0)
	protocol.PutSendData(late, math.MaxUint64, 1)
	// Returns, or the test ends with its time.
	if err := ch.rx.readQueue(); err != nil {
		t.Error(err)
	}
	if n := ch.rx.count.RxLate.Load(); n < uint64(c.cfg.receives()) {
		t.Errorf("%d messages were taken, fewer than can have come before the event", n)
	}
}

// TestReceiverWaitsOnce lets a receiver find no slot for its update again and
// again, because the peer takes none. It hears when there is one.
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

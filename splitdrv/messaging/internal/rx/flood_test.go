package rx

import (
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core/coretest"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/pools"
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

// newFlooded returns the receiver of a data channel, whose goroutine does not run. It can post any number of
// receives. What arrives in mode send-uc is late, and costs the peer no credit.
func newFlooded(t *testing.T, c *core.Session, number int) *Receiver {
	t.Helper()
	ch := coretest.Channel(t, c, number, 80, fabric.QPConfig{})
	m := pools.New(c, pools.Options{Channels: 16, Idle: time.Minute}, nil, nil)
	shared, err := m.AddChannel(nil, 1, pools.SlotSize)
	if err != nil {
		t.Fatal(err)
	}
	r := New(c, Options{Receives: 80}, ch, nil, shared, nil, m)
	ch.QP = bottomlessQP{ch.QP}
	lent, err := m.First(number, pools.Config{ElementSize: 2048, Elements: 64})
	if err == nil {
		err = r.Adopt(lent)
	}
	if err == nil {
		r.notification = cq.Notification{CQ: ch.RecvCQ}
		r.idle, err = c.NewWaiter()
	}
	if err != nil {
		t.Fatal(err)
	}
	protocol.PutSendData(lent.Element(0), 1<<63, 1)
	return r
}

// TestMailInAFlood reads the queue of a receiver while the peer sends messages without end.
// The messages are late and cost the peer no credit. Reading the queue must end.
func TestMailInAFlood(t *testing.T) {
	r := newFlooded(t, coretest.New(t, protocol.ModeSendUC), 1)
	r.ch.RecvCQ = endlessCQ{r.ch.RecvCQ}
	// If ReadQueue does not return, the test times out.
	if err := r.ReadQueue(); err != nil {
		t.Error(err)
	}
	if n := r.Count.RxLate.Load(); n < uint64(r.o.Receives) {
		t.Errorf("%d messages were taken, fewer than can have come before the event", n)
	}
}

// countingQP counts the receives that are posted.
type countingQP struct {
	fabric.QP
	receives int
}

func (q *countingQP) PostRecv(wrs []fabric.RecvWR) (int, error) {
	q.receives += len(wrs)
	return len(wrs), nil
}

// TestSpareReceives adopts pools after others have ended, whose receives are still posted. As many receives
// must be posted as elements of the pools are without one.
func TestSpareReceives(t *testing.T) {
	r := newFlooded(t, coretest.New(t, protocol.ModeImm), 1)
	qp := &countingQP{QP: r.ch.QP}
	r.ch.QP = qp
	lent := r.Pools()[0]
	n := lent.Elements.Len()
	r.spare = n + n/2
	for _, want := range []int{0, n / 2, n/2 + n} {
		if err := r.Adopt(lent); err != nil {
			t.Fatal(err)
		}
		if qp.receives != want {
			t.Errorf("%d receives are posted, want %d", qp.receives, want)
		}
	}
}

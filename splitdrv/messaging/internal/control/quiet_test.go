package control

import (
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core/coretest"
)

// newQuiet returns a control channel that is not connected, and whose handler does not run.
func newQuiet(t *testing.T, c *core.Session) *Channel {
	t.Helper()
	k, err := New(c, &Options{}, 2*protocol.OtherControl, 8, func([]byte) error { return nil })
	if err == nil {
		k.notification = cq.Notification{CQ: k.cq}
		k.idle, err = c.NewWaiter()
	}
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestReceiverWaitsOnce has a receiver try several times to send an update while no control
// slot is free. It must be notified once when a slot becomes free.
func TestReceiverWaitsOnce(t *testing.T) {
	k := newQuiet(t, coretest.New(t, protocol.ModeImm))
	k.free = k.free[:protocol.OtherControl]
	var receiver core.Wakeup
	for range 3 {
		if sent, err := k.TrySend(&receiver, nil); sent || err != nil {
			t.Fatalf("sent %t, %v", sent, err)
		}
	}
	if n := len(k.blocked); n != 1 {
		t.Errorf("one receiver waits %d times", n)
	}
	k.release(0)
	if woken := receiver.Pending.Load(); !woken || len(k.blocked) != 0 {
		t.Errorf("the receiver is woken: %t, and waits %d times more", woken, len(k.blocked))
	}
}

// polledCQ is an empty completion queue that closes again when it is polled a second time:
// by a worker that polls before it sleeps.
type polledCQ struct {
	fabric.CQ
	polls int
	again chan struct{}
}

func (c *polledCQ) Poll([]fabric.Completion) (int, error) {
	if c.polls++; c.polls == 2 {
		close(c.again)
	}
	return 0, nil
}

// TestSpinEnds ends a session whose control handler polls an empty queue. The handler must end.
func TestSpinEnds(t *testing.T) {
	c := coretest.New(t, protocol.ModeImm)
	c.Handlers = cq.NewHandlers(cq.Handling{
		Handlers: []cq.Handler{{Budget: cq.DefaultBudget, Spin: time.Hour}, {Number: 1, Budget: cq.DefaultBudget}},
	}, 1, nil)
	k := newQuiet(t, c)
	polled := &polledCQ{CQ: k.cq, again: make(chan struct{})}
	k.cq = polled
	c.Work(k.w, k.run, nil)
	ended := make(chan struct{})
	for _, done := range []chan struct{}{polled.again, ended} {
		select {
		case <-done:
		case <-time.After(testenv.Patience):
			t.Fatal("waited in vain")
		}
		if done == polled.again {
			go func() {
				defer close(ended)
				c.End(nil)
				c.Workers.Wait()
			}()
		}
	}
}

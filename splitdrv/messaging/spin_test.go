package messaging

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
)

// errArmed is the error of a receiver that does not poll on.
var errArmed = errors.New("armed")

// slowCQ is a completion queue that is empty for the first polls. It must not be armed before
// it has a completion.
type slowCQ struct {
	endlessCQ
	looks int // number of the poll that first finds a completion, counted down
	found chan struct{}
}

func (c *slowCQ) Poll(out []fabric.Completion) (int, error) {
	if c.looks--; c.looks > 0 {
		return 0, nil
	}
	if c.looks == 0 {
		close(c.found)
	}
	return c.endlessCQ.Poll(out)
}

func (c *slowCQ) Arm(solicitedOnly bool) error {
	if c.looks > 0 {
		return fmt.Errorf("%w with %d looks to come", errArmed, c.looks)
	}
	return c.CQ.Arm(solicitedOnly)
}

// TestSpin runs a receiver whose handler is configured to poll, on a queue that is empty for
// long. The receiver must not arm the queue in the meantime, and must end with the session.
func TestSpin(t *testing.T) {
	c := floodedConn(t)
	ch := c.channels[0]
	if err := c.SetHandler(Handler{Number: 1, Spin: MaxSpin}); err != nil {
		t.Fatal(err)
	}
	if got := time.Duration(ch.rx.w.polling.longest.Load()); got != MaxSpin {
		t.Fatalf("the receiver polls for %v", got)
	}
	ch.rx.w.polling.longest.Store(int64(time.Hour)) // more than this test may take
	cq := &slowCQ{endlessCQ: endlessCQ{ch.recvCQ}, looks: 5000, found: make(chan struct{})}
	ch.recvCQ, ch.qp = cq, bottomlessQP{ch.qp}
	canSleep(t, c)
	// A late message costs the peer no credit.
	protocol.PutSendData((*ch.rx.local.Load())[0].Element(0), 1<<63, 1)
	ended := make(chan error, 1)
	go func() {
		defer ch.rx.w.release()
		ended <- ch.rx.run()
	}()
	select {
	case <-cq.found:
	case err := <-ended:
		t.Fatalf("the receiver has ended before there was a completion: %v", err)
	case <-time.After(testenv.Patience):
		t.Fatal("the receiver does not poll")
	}
	c.end(net.ErrClosed)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// canSleep gives the receivers and the control handler their notifications and waiters, which
// they need to sleep.
func canSleep(t *testing.T, c *Conn) {
	t.Helper()
	var err error
	c.control.notification = notification{cq: c.control.cq}
	c.control.idle, err = c.newWaiter()
	for _, ch := range c.channels {
		if err == nil {
			ch.rx.notification = notification{cq: ch.recvCQ}
			ch.rx.idle, err = c.newWaiter()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

func await(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(testenv.Patience):
		t.Fatal("waited in vain")
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

// TestSpinEnds ends a session whose workers poll empty queues. The workers must end.
func TestSpinEnds(t *testing.T) {
	dev := fabrictest.New().Device("a")
	t.Cleanup(func() { dev.Close() })
	c, err := New(Config{Device: dev})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	rx := c.channels[0].rx
	data, control := &polledCQ{CQ: rx.ch.recvCQ, again: make(chan struct{})},
		&polledCQ{CQ: c.control.cq, again: make(chan struct{})}
	rx.ch.recvCQ, c.control.cq = data, control
	rx.w.polling.longest.Store(int64(time.Hour))
	c.control.w.polling.longest.Store(int64(time.Hour))
	canSleep(t, c)
	c.work(rx.w, rx.run, nil)
	c.work(c.control.w, c.control.run, nil)
	await(t, data.again)
	await(t, control.again)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.halt() // waits for the workers
	}()
	await(t, ended)
}

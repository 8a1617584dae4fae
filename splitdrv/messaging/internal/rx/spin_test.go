package rx

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core/coretest"
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
	// Longer than this test may take.
	c := coretest.WithHandlers(t, protocol.ModeSendUC, []cq.Handler{{Number: 1, Budget: 1, Spin: time.Hour}}, 1)
	r := newFlooded(t, c, 1)
	q := &slowCQ{endlessCQ: endlessCQ{r.ch.RecvCQ}, looks: 5000, found: make(chan struct{})}
	r.ch.RecvCQ, r.notification.CQ = q, q
	ended := make(chan error, 1)
	go func() {
		defer r.W.Release()
		ended <- r.run()
	}()
	select {
	case <-q.found:
	case err := <-ended:
		t.Fatalf("the receiver has ended before there was a completion: %v", err)
	case <-time.After(testenv.Patience):
		t.Fatal("the receiver does not poll")
	}
	c.End(net.ErrClosed)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

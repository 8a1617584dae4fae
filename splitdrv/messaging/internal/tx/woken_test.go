package tx

import (
	"errors"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/pools"
)

// failedCQ is a completion queue with the completion of a work request that has failed.
type failedCQ struct{ fabric.CQ }

func (failedCQ) Poll(out []fabric.Completion) (int, error) {
	out[0] = fabric.Completion{Status: fabric.StatusRemOpErr}
	return 1, nil
}

// TestWokenSenderPolls wakes a sender that waits for nothing on its send queue, as a worker does that looks
// for the cause of its failure. The sender must find the work request that has failed.
func TestWokenSenderPolls(t *testing.T) {
	s := newIdle(t, protocol.ModeImm, usual(), 0, pools.Options{})
	s.ch.SendCQ = failedCQ{s.ch.SendCQ}
	if _, err := s.step(); err != nil {
		t.Errorf("a sender that nobody has woken: %v", err)
	}
	s.Queue.Wake()
	if _, err := s.step(); !errors.Is(err, &fabric.WCError{Status: fabric.StatusRemOpErr}) {
		t.Errorf("%v", err)
	}
}

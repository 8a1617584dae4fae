package messaging

import (
	"errors"
	"time"

	"github.com/splitnic/splitnic/fabric"
)

// A queue pair that has failed flushes all that is posted to it, and who sees
// that first has seen a consequence. The reason for it is with another worker, or
// in a queue at which a sender that waits for frames does not look.
const (
	// afterFlush is how long the reason is waited for. There may be none: a
	// device that refuses what the peer tried says so only to the peer.
	afterFlush = 50 * time.Millisecond
	flushLook  = time.Millisecond
)

// causeOf is what err, of a worker, is only a consequence of, or else err.
func causeOf(c *shared, control *control, channels []*channel, err error) error {
	var flushed *fabric.WCError
	if !errors.As(err, &flushed) || flushed.Status != fabric.StatusWRFlushErr {
		return err
	}
	late := time.NewTimer(afterFlush)
	defer late.Stop()
	tick := time.NewTicker(flushLook)
	defer tick.Stop()
	for {
		if first := failure(control, channels, flushed.QPN); first != nil {
			return first
		}
		select {
		case <-c.done: // somebody knows better
			return err
		case <-late.C:
			return err
		case <-tick.C:
		}
	}
}

// failure looks among what a failed queue pair has sent for an error that is no
// flush. Whom it takes completions away from needs them no longer.
func failure(control *control, channels []*channel, qpn uint32) error {
	cq, number := control.cq, 0
	for _, ch := range channels {
		if ch.qp.Num() == qpn {
			cq, number = ch.sendCQ, ch.number
		}
	}
	var some [16]fabric.Completion
	for {
		n, err := cq.Poll(some[:])
		if n == 0 || err != nil {
			return nil
		}
		for i := range some[:n] {
			if s := some[i].Status; s != fabric.StatusSuccess && s != fabric.StatusWRFlushErr {
				return sendFailure(number, &some[i])
			}
		}
	}
}

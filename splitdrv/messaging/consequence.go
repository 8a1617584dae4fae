package messaging

import (
	"errors"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/splitdrv/device"
)

// When a queue pair fails, all its other work requests complete with a flush error. A
// worker that sees such a completion first does not know the cause: the completion with
// the cause is seen by another worker, or it is in a queue that a sender which waits for
// frames does not poll.
const (
	// afterFlush is how long causeOf waits for the cause. There may be none: a device that
	// refuses an operation of the peer reports that only to the peer.
	afterFlush = 50 * time.Millisecond
	flushLook  = time.Millisecond
)

// causeOf returns the cause of err, the error of a worker, if err is only a flush error.
// Otherwise it returns err.
func causeOf(c *shared, control *control, channels []*channel, err error) error {
	if f, ok := c.domain.(device.Failing); ok {
		err = f.Explain(err)
	}
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
		case <-c.done: // another worker has reported its error
			return err
		case <-late.C:
			return err
		case <-tick.C:
		}
	}
}

// failure polls the send completions of a failed queue pair for an error that is not a
// flush error. The owner of the completion queue no longer needs these completions.
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

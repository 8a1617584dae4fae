package messaging

import (
	"errors"
	"fmt"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/splitdrv/device"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/control"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
)

// When a queue pair fails, all its other work requests complete with a flush error, and some
// devices refuse to post more. A worker that sees such a consequence first does not know the
// cause: the completion with the cause is seen by another worker, or it is in a queue that a
// sender which waits for frames does not poll. Only the worker that owns a completion queue may
// poll it. So a worker that has failed goes on to look at its own queues, asks the sender of the
// channel to look at its one, and waits.
const (
	// afterFlush is how long causeOf waits for the cause. There may be none: a device that
	// refuses an operation of the peer reports that only to the peer.
	afterFlush = 50 * time.Millisecond
	flushPause = time.Millisecond // between two polls
)

// causeOf returns the cause of err, the error of a worker, if err is only a consequence. Otherwise
// it returns err. own, which may be nil, polls the completion queues that belong to the caller and
// returns the error of the first failed completion.
func causeOf(c *core.Session, control *control.Channel, channels []*channel, err error, own func() error) error {
	if f, ok := c.Domain.(device.Failing); ok {
		err = f.Explain(err)
	}
	qpn, ok := fabric.Consequence(err)
	if !ok {
		return err
	}
	late := time.NewTimer(afterFlush)
	defer late.Stop()
	tick := time.NewTicker(flushPause)
	defer tick.Stop()
	var failures []func() error // each returns the error of a queue that may be polled here
	if own != nil {
		failures = append(failures, own)
	}
	if qpn == control.QP.Num() {
		failures = append(failures, control.Failure)
	}
	flushed := error(nil)
	for {
		for _, failure := range failures {
			first := failure()
			number, follows := fabric.Consequence(first)
			switch {
			case first == nil:
			case !follows:
				return first
			case number == qpn:
				flushed = first
			}
		}
		for _, ch := range channels {
			if ch.QP.Num() == qpn {
				ch.shared.Sender.Queue.Wake() // then it polls its queue
			}
		}
		select {
		case <-c.Done: // another worker has reported its error
			return err
		case <-late.C:
			return withFlush(control, channels, qpn, err, flushed)
		case <-tick.C:
		}
	}
}

// withFlush returns err, which also says that the work request was flushed if it was refused by a
// queue pair that has failed.
func withFlush(control *control.Channel, channels []*channel, qpn uint32, err, flushed error) error {
	if errors.As(err, new(*fabric.WCError)) {
		return err
	}
	qp := control.QP
	for _, ch := range channels {
		if ch.QP.Num() == qpn {
			qp = ch.QP
		}
	}
	if flushed == nil {
		flushed = failed(qp)
	}
	if flushed == nil {
		return err // the queue pair is well, or does not say
	}
	return fmt.Errorf("%w: %w", err, flushed)
}

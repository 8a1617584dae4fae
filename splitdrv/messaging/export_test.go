package messaging

import (
	"errors"
	"fmt"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/ticker"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/control"
)

// Remembered returns the number of elements of those of the peer's pools with references below refs
// that the Conn remembers.
func (c *Conn) Remembered(refs uint32) (elements int) {
	for ref := range refs {
		if r := c.pools.Remote(ref); r != nil {
			elements += r.Len()
		}
	}
	return elements
}

// Assign assigns a data channel to a handler.
func (c *Conn) Assign(channel, handler int) error {
	return c.change(cq.HandlerChange{Assign: map[int]int{channel: handler}})
}

// SetHandler changes the handler with h's number to h.
func (c *Conn) SetHandler(h cq.Handler) error {
	if h.Budget == 0 {
		h.Budget = cq.DefaultBudget
	}
	return c.change(cq.HandlerChange{Handlers: []cq.HandlerPatch{{
		Number: h.Number, CPUs: &h.CPUs, Priority: &h.Priority, Budget: &h.Budget, Spin: &h.Spin,
		Adaptive: &h.Adaptive,
	}}})
}

func (c *Conn) change(change cq.HandlerChange) error {
	g, err := c.Handling().Change(change)
	if err != nil {
		return err
	}
	return c.SetHandling(g)
}

// Pass advances the clock by one part of the keep-alive interval.
func (c *Conn) Pass() { c.shared.Clock.Advance(control.PartOf(c.options)) }

// Beat makes beat n of the keep-alives, and returns how many of the next beats can be left
// out.
func (c *Conn) Beat(n uint64) (rest int) { return c.signs.Check(ticker.Tick{N: n}) }

// Look returns a function that returns an error until the control handler has polled once after the
// function was first called, and so after every request before to poll.
func (c *Conn) Look() func() error {
	s := c.signs.NewSilence(time.Hour, 0)
	return func() error {
		if !s.Over(0, 0) {
			return errors.New("the control handler has not polled")
		}
		return nil
	}
}

// Answered returns an error while requests are unanswered.
func (c *Conn) Answered() error {
	if n := len(c.requests.Slots); n > 0 {
		return fmt.Errorf("%d requests are unanswered", n)
	}
	return nil
}

// StopPoolBeat stops the beats of the pool manager, so that only LookAtPools runs it.
func (c *Conn) StopPoolBeat() { c.pools.Stop() }

// LookAtPools runs the pool manager once. quiet reports that its next beats can be left out.
func (c *Conn) LookAtPools() (quiet bool, err error) { return c.pools.Tick() }

// PoolsRest reports whether beats of the pool manager are being left out.
func (c *Conn) PoolsRest() bool { return c.pools.Resting.Load() }

// QueryQueuePairs asks the device once for the state of the queue pairs, as the watch does.
func (c *Conn) QueryQueuePairs() error {
	err := failed(c.control.QP)
	for _, ch := range c.channels {
		err = errors.Join(err, failed(ch.QP))
	}
	return err
}

// ArmSolicited arms a completion queue as a worker does that wants solicited completions only.
func ArmSolicited(q fabric.CQ) error { return (&cq.Notification{CQ: q, Solicited: true}).Arm() }

// CauseOfRefusal returns the error of a session for which a post on a data channel was refused with
// err and no cause was found. With fail, the queue pair has failed.
func (c *Conn) CauseOfRefusal(fail bool, err error) error {
	qp := c.channels[0].QP
	if fail {
		err = errors.Join(err, qp.Fail())
	}
	return withFlush(c.control, c.channels, qp.Num(), fabric.Refused(qp, err), nil)
}

// OwnCause makes a work request of a data channel, or of the control channel, fail, and returns the
// cause that is found for a post that is then refused with err. No worker may run.
func (c *Conn) OwnCause(control bool, err error) error {
	qp, own := c.channels[0].QP, c.channels[0].tx.Failure
	if control {
		qp, own = c.control.QP, nil
	}
	_, failed := qp.PostSend([]fabric.SendWR{{Op: fabric.OpWrite}})
	return c.shared.Reason(fabric.Refused(qp, errors.Join(err, failed)), own)
}

package fabrictest

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
)

// Connect implements fabric.QP.
func (q *qp) Connect(remote fabric.Address, t fabric.Timing) error {
	const doing = "connecting"
	t = t.WithDefaults()
	var wrong error
	switch {
	case remote.QPN == 0 || remote.QPN > 0xffffff:
		wrong = fmt.Errorf("remote queue pair number %#x is not of 1 to 24 bits", remote.QPN)
	case remote.PSN > 0xffffff:
		wrong = fmt.Errorf("remote packet sequence number %#x has more than 24 bits", remote.PSN)
	case !slices.Contains([]int{256, 512, 1024, 2048, 4096}, remote.MTU):
		wrong = fmt.Errorf("remote MTU %d is not 256, 512, 1024, 2048 or 4096", remote.MTU)
	case t.Timeout > 31:
		wrong = fmt.Errorf("timeout %d is over 31", t.Timeout)
	case t.RetryCount > 7:
		wrong = fmt.Errorf("retry count %d is over 7", t.RetryCount)
	case t.RNRRetry > 7:
		wrong = fmt.Errorf("receiver-not-ready retry count %d is over 7", t.RNRRetry)
	case t.MinRNRTimer > 31:
		wrong = fmt.Errorf("receiver-not-ready timer %d is over 31", t.MinRNRTimer)
	}
	if wrong != nil {
		return q.errorf(doing, fmt.Errorf("%w: %w", wrong, unix.EINVAL))
	}
	if !q.net.hasGID(remote.GID) {
		return q.errorf(doing, fmt.Errorf("nobody answers for GID %x: %w", remote.GID, unix.ETIMEDOUT))
	}
	q.node.commands.modifyQP.Add(1)
	q.sq.Lock()
	defer q.sq.Unlock()
	q.resp.Lock()
	defer q.resp.Unlock()
	q.rq.Lock()
	defer q.rq.Unlock()
	switch q.state.Load() {
	case stateClosed:
		return q.errorf(doing, q.dom.dev.closedErr())
	case stateReady:
		return q.errorf(doing, fmt.Errorf("it is connected already: %w", unix.EINVAL))
	case stateError:
		return q.errorf(doing, fmt.Errorf("it is in the error state: %w", unix.EINVAL))
	}
	q.remote, q.timing = remote, t
	q.state.Store(stateReady)
	return nil
}

// Fail implements fabric.QP.
func (q *qp) Fail() error {
	q.node.commands.modifyQP.Add(1)
	q.resp.Lock()
	closed := q.state.Load() == stateClosed
	if !closed {
		q.enterError()
	}
	q.resp.Unlock()
	if closed {
		return q.errorf("failing", q.dom.dev.closedErr())
	}
	q.sq.Lock()
	q.flushPending()
	q.sq.Unlock()
	return nil
}

// Failed implements fabric.QP.
func (q *qp) Failed() (bool, error) {
	q.node.commands.queryQP.Add(1)
	s := q.state.Load()
	if s == stateClosed {
		return false, q.errorf("querying", q.dom.dev.closedErr())
	}
	if q.net.adapter.NoQuery {
		return false, q.errorf("querying", fabric.ErrUnsupported)
	}
	return s == stateError, nil
}

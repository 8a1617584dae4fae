package soak

import (
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// verdict compares how both ends ended with the plan: the end with the fault has to end because of
// the fault, and the other one because its peer has gone.
func (c *cycle) verdict() error {
	var errs []error
	for _, e := range c.ends {
		var pe *messaging.ProtocolError
		switch {
		case errors.As(e.err, &pe) && (c.fault != faultFrame || e.side != c.at):
			errs = append(errs, fmt.Errorf("the %v blames its peer: %w", e.side, e.err))
		case c.struck(e):
			if !c.caused(e.err, e.side) {
				errs = append(errs, fmt.Errorf("the %v ended for another reason than the planned end: %w", e.side,
					orNothing(e.err)))
			}
		case !c.caused(e.err, e.side) && !deserted(e.err):
			errs = append(errs, fmt.Errorf("the %v ended though nothing happened to it, and not because the other side had gone: %w", e.side, orNothing(e.err)))
		}
	}
	return errors.Join(errs...)
}

// struck reports whether e must have ended because of the fault itself.
func (c *cycle) struck(e *end) bool {
	switch c.fault {
	case faultRefuse:
		return true
	case faultNetdev:
		return e.side != c.at
	case faultLink, faultQP, faultCut, faultPost, faultRequest:
		return false // either end may notice the fault first
	default:
		return e.side == c.at
	}
}

// caused reports whether err is an error with which a side ends because of the fault itself. It is
// nil for a side that is told to end.
func (c *cycle) caused(err error, s side) bool {
	mine := s == c.at
	switch c.fault {
	case faultRefuse:
		var no *session.RefusedError
		return s == unit && errors.Is(err, errLeft) || s == host && errors.As(err, &no) && no.Code == session.CodeFull
	case faultLeave:
		nobody := c.at == host && c.phase == phaseDialled // the I/O unit has no peer
		return mine && errors.Is(err, errLeft) || !mine && nobody && err == nil
	case faultLink:
		return mine && errors.Is(err, net.ErrClosed)
	case faultQP:
		return isFlush(err) || mine && err == nil && c.unreliable()
	case faultCut:
		return isFlush(err)
	case faultFrame:
		var pe *messaging.ProtocolError
		return mine && errors.As(err, &pe) && pe.Code() == "frame"
	case faultNetdev:
		return !mine && errors.Is(err, io.EOF)
	case faultKill:
		return mine && (err == nil || errors.Is(err, net.ErrClosed))
	case faultPost:
		return mine && (err == nil || errors.Is(err, errRefused))
	case faultRequest:
		return mine && (err == nil || isFlush(err))
	default:
		return mine && err == nil
	}
}

// deserted reports whether err is the error of a side whose peer has gone.
func deserted(err error) bool {
	var bye *session.ByeError
	return errors.As(err, &bye) || errors.Is(err, session.ErrPeerGone) || isFlush(err)
}

// isFlush reports whether err is the error of a queue pair that has failed, or whose peer has gone.
func isFlush(err error) bool {
	var wc *fabric.WCError
	return errors.As(err, &wc)
}

func orNothing(err error) error {
	if err == nil {
		return errors.New("no reason")
	}
	return err
}

// losses returns an error if the side with the fault has lost more frames than the fault has
// dropped.
func (p *plan) losses(sum tally) error {
	if p.fault == faultLoss && sum.tolerated > uint64(p.drop) {
		return fmt.Errorf("%d frames were lost, of %d messages that the fault has taken", sum.tolerated, p.drop)
	}
	return nil
}

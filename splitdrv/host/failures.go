package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
)

// mostNamed is the largest number of I/O units that the last error describes.
const mostNamed = 8

// lastError returns why there is no session, "" if nothing has failed yet. units are the known I/O
// units, in order of preference. If several have failed, each has its reason: those that were
// reached come first, because their answers tell more than the absence of others.
func (t *tally) lastError(units []string) string {
	var failed, absent []string
	for _, addr := range units {
		switch err := t.failed[addr]; {
		case err == nil:
		case wasReached(err):
			failed = append(failed, addr)
		default:
			absent = append(absent, addr)
		}
	}
	reached := len(failed)
	failed = append(failed, absent...)
	switch {
	case t.lastErr == nil:
		return ""
	case len(failed) == 0:
		return t.lastErr.Error()
	case len(failed) == 1:
		return t.failed[failed[0]].Error()
	}
	var parts []string
	for i, addr := range failed[:min(len(failed), mostNamed)] {
		err := t.failed[addr]
		switch {
		case i < reached:
			parts = append(parts, addr+": "+err.Error())
		case i == 0:
			parts = append(parts, err.Error()) // of a dial, which names the address
		default:
			parts = append(parts, addr+": "+brief(err))
		}
	}
	if more := len(failed) - mostNamed; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}

// wasReached reports whether err is of an I/O unit that was connected to.
func wasReached(err error) bool {
	return dialError(err) == nil && !errors.Is(err, errOvertaken)
}

// dialError returns the part of err that tells why no connection was made, or nil.
func dialError(err error) *net.OpError {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return op
	}
	return nil
}

// brief returns the reason for which an I/O unit was not reached, without its address and a hint.
func brief(err error) string {
	var errno syscall.Errno
	var dns *net.DNSError
	op := dialError(err)
	switch {
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &dns):
		return dns.Err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), op != nil && op.Timeout():
		return "no answer"
	case op != nil:
		return op.Err.Error()
	}
	return err.Error()
}

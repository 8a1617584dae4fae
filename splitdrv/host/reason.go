package host

import (
	"context"
	"errors"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// errOvertaken is the error of an attempt that was given up for another I/O unit.
var errOvertaken = errors.New("no answer, and another I/O unit is available")

// isPermanent reports whether trying again does not help.
func isPermanent(err error) bool {
	var refused *session.RefusedError
	switch {
	case errors.As(err, new(*session.UntrustedError)), errors.As(err, new(*session.VersionError)),
		errors.Is(err, session.ErrNotSplitnic), errors.Is(err, session.ErrSecurityMode),
		errors.Is(err, syscall.ENOMEM): // a limit of this process (RLIMIT_MEMLOCK) or of the machine
		return true
	case errors.As(err, &refused):
		return !refused.Retry
	}
	return false
}

// restarts reports whether err can mean that the I/O unit is being restarted.
func restarts(err error) bool {
	var refused *session.RefusedError
	return errors.Is(err, syscall.ECONNREFUSED) ||
		errors.As(err, &refused) && refused.Code == session.CodeShuttingDown
}

// retryAfter returns the time for which an I/O unit that has refused a session will refuse
// more; 0: it has not said.
func retryAfter(err error) time.Duration {
	if refused := (*session.RefusedError)(nil); errors.As(err, &refused) {
		return refused.After
	}
	return 0
}

// inGoodOrder reports whether the I/O unit ended a session in good order, so that all its
// frames had arrived before its bye.
func inGoodOrder(err error) bool {
	var bye *session.ByeError
	return errors.As(err, &bye) && (bye.Code == session.CodeShuttingDown || bye.Code == session.CodeDisconnected)
}

// reasonOf returns the reason for the end of a session as one word.
func reasonOf(err error) uplink.Reason {
	var bye *session.ByeError
	switch {
	case errors.As(err, &bye) && bye.Code == session.CodeShuttingDown:
		return uplink.ReasonGoodbye
	case errors.As(err, &bye):
		return uplink.ReasonEnded
	case errors.As(err, new(*messaging.ProtocolError)):
		return uplink.ReasonProtocol
	case errors.As(err, new(*session.RevokedError)):
		return uplink.ReasonTrust
	case errors.Is(err, messaging.ErrPeerSilent), errors.Is(err, os.ErrDeadlineExceeded),
		errors.Is(err, unix.ETIMEDOUT), errors.Is(err, unix.EHOSTUNREACH):
		return uplink.ReasonSilent
	case errors.Is(err, session.ErrPeerGone):
		return uplink.ReasonDied
	default:
		return uplink.ReasonFabric
	}
}

// failure is the part of an error by which two failures are compared. Errors of the same
// failure can differ in numbers, such as the time to wait or a port number.
type failure struct {
	reason string       // session.Reason
	code   session.Code // code of the I/O unit's refusal
	errno  syscall.Errno
	known  error // one of knownFailures
}

var knownFailures = []error{
	errOvertaken, uplink.ErrNoStandby, messaging.ErrPeerSilent, context.DeadlineExceeded, context.Canceled,
}

func failureOf(err error) failure {
	f := failure{reason: session.Reason(err)}
	if refused := (*session.RefusedError)(nil); errors.As(err, &refused) {
		f.code = refused.Code
	}
	errors.As(err, &f.errno)
	if i := slices.IndexFunc(knownFailures, func(known error) bool { return errors.Is(err, known) }); i >= 0 {
		f.known = knownFailures[i]
	}
	return f
}

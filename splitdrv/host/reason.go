package host

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// errOvertaken is why an attempt to open a session was given up.
var errOvertaken = errors.New("no answer, and another I/O unit is available")

// isPermanent reports whether trying again will not help.
func isPermanent(err error) bool {
	var untrusted *session.UntrustedError
	var version *session.VersionError
	var refused *session.RefusedError
	switch {
	case errors.As(err, &untrusted), errors.As(err, &version),
		errors.Is(err, session.ErrNotSplitnic), errors.Is(err, session.ErrSecurityMode),
		errors.Is(err, syscall.ENOMEM): // of this process: RLIMIT_MEMLOCK, if not the machine's
		return true
	case errors.As(err, &refused):
		return !refused.Retry
	}
	return false
}

// restarts reports whether an I/O unit that cannot be reached for that reason may
// be there again at any moment.
func restarts(err error) bool {
	var refused *session.RefusedError
	return errors.Is(err, syscall.ECONNREFUSED) ||
		errors.As(err, &refused) && refused.Code == session.CodeShuttingDown
}

// retryAfter is how long the I/O unit that refused a session has said that it will
// give none; 0: it has not.
func retryAfter(err error) time.Duration {
	if refused := (*session.RefusedError)(nil); errors.As(err, &refused) {
		return refused.After
	}
	return 0
}

// inGoodOrder reports whether a session ended by a bye that nothing is on its way behind.
func inGoodOrder(err error) bool {
	var bye *session.ByeError
	return errors.As(err, &bye) && (bye.Code == session.CodeShuttingDown || bye.Code == session.CodeDisconnected)
}

// reasonOf says in a word why a session ended.
func reasonOf(err error) uplink.Reason {
	var bye *session.ByeError
	var broken *messaging.ProtocolError
	switch {
	case errors.As(err, &bye) && bye.Code == session.CodeShuttingDown:
		return uplink.ReasonGoodbye
	case errors.As(err, &bye):
		return uplink.ReasonEnded
	case errors.As(err, &broken):
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

// failure is why there is no session, as far as a program can tell. Errors that are
// the same failure differ in numbers, such as how long to wait or which port a
// connection came from.
type failure struct {
	reason string       // session.Reason
	code   session.Code // of the I/O unit's refusal
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
	for _, known := range knownFailures {
		if errors.Is(err, known) {
			f.known = known
			break
		}
	}
	return f
}

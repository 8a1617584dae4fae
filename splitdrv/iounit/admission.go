package iounit

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/limit"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// chooseMode is the first of the modes that the host wants which the I/O unit
// has and the policy allows.
func chooseMode(wanted, have, allowed []protocol.Mode) (protocol.Mode, error) {
	var possible []string
	for _, m := range have {
		if slices.Contains(allowed, m) {
			possible = append(possible, string(m))
		}
	}
	for _, m := range wanted {
		if slices.Contains(possible, string(m)) {
			return m, nil
		}
	}
	return "", fmt.Errorf("no transfer mode of %v is available; use %s", wanted, strings.Join(possible, ", "))
}

// passing are errors that may be over when the host tries again: memory or
// descriptors ran out, or the network card is being changed.
var passing = []error{
	lan.ErrGone, unix.ENODEV, unix.EAGAIN, unix.EINTR,
	unix.ENOMEM, unix.ENOBUFS, unix.EMFILE, unix.ENFILE, unix.ENETDOWN,
	messaging.ErrBudget,
}

// codeOf is what a host is told that cannot have a session because of err:
// whether another one could, and whether it may work later.
func codeOf(err error) session.Code {
	switch {
	case errors.Is(err, lan.ErrInUse), errors.Is(err, lan.ErrUnsupported):
		return session.CodePolicy
	case slices.ContainsFunc(passing, func(p error) bool { return errors.Is(err, p) }):
		return session.CodeBusy
	case errors.Is(err, messaging.ErrMemory):
		return session.CodePolicy
	default:
		return session.CodeFailed
	}
}

// codedError is why a host cannot have a session, where another code than codeOf says it.
type codedError struct {
	code session.Code
	err  error
}

// Error implements error.
func (e *codedError) Error() string { return e.err.Error() }

// refusal is who was refused and why, as far as a program can tell: a host that tries
// again and again is one line in the log.
type refusal struct {
	machine limit.Key           // that a connection came from
	key     session.Fingerprint // that is not trusted
	host    string              // hostKey
	reason  string              // of Refusals
	known   error               // one of knownRefusals
	errno   unix.Errno
}

// knownRefusals are reasons that one code of a refusal has.
var knownRefusals = []error{
	errFull, errSessions, errReplaced, errEnding, errDraining, errDisconnected, errUnbound, errDenied,
	lan.ErrInUse, lan.ErrUnsupported, lan.ErrGone, messaging.ErrBudget, messaging.ErrMemory,
}

func connectionRefused(from net.Addr, err error) refusal {
	r := refusal{machine: limit.Machine(from), reason: session.Reason(err)}
	if untrusted := (*session.UntrustedError)(nil); errors.As(err, &untrusted) {
		r.key = untrusted.Fingerprint
	}
	return r
}

func hostRefused(host, reason string, err error) refusal {
	r := refusal{host: host, reason: reason}
	errors.As(err, &r.errno)
	if i := slices.IndexFunc(knownRefusals, func(known error) bool { return errors.Is(err, known) }); i >= 0 {
		r.known = knownRefusals[i]
	}
	return r
}

// Refusals are the reasons by which connections and hosts are counted that got
// no session: session.Reasons, and the codes with which a host is refused.
func Refusals() []string {
	reasons := session.Reasons()
	for _, c := range []session.Code{session.CodeMode, session.CodePolicy, session.CodeBusy, session.CodeFull,
		session.CodeDraining, session.CodeShuttingDown, session.CodeFailed} {
		reasons = append(reasons, string(c))
	}
	return reasons
}

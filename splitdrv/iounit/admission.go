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

// chooseMode returns the first of the host's modes that the I/O unit has and the policy
// allows.
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

// passing are errors that can be over when the host tries again: memory or descriptors ran
// out, or the network card is being changed.
var passing = []error{
	lan.ErrGone, unix.ENODEV, unix.EAGAIN, unix.EINTR,
	unix.ENOMEM, unix.ENOBUFS, unix.EMFILE, unix.ENFILE, unix.ENETDOWN,
	messaging.ErrBudget,
}

// codeOf returns the code for a host that gets no session because of err. The code shows
// whether another host could get one, and whether it may work later.
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

// codedError is the reason for which a host gets no session, with another code than that of
// codeOf.
type codedError struct {
	code session.Code
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }

// refusal identifies a refused client and the reason, so that repeated attempts cause only
// one line in the log.
type refusal struct {
	machine limit.Key           // machine from which a connection came
	key     session.Fingerprint // untrusted key
	host    string              // hostKey
	reason  string              // one of Refusals
	known   error               // one of knownRefusals
	errno   unix.Errno
}

// knownRefusals are the reasons that the same code can have.
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

// reasonElsewhere is the session.Reason of hosts that use another I/O unit. It is not a refusal.
const reasonElsewhere = string(session.CodeElsewhere)

// Refusals returns the reasons by which connections and hosts without a session are counted:
// session.Reasons without elsewhere, and the codes with which hosts are refused.
func Refusals() []string {
	reasons := slices.DeleteFunc(session.Reasons(), func(name string) bool { return name == reasonElsewhere })
	for _, c := range []session.Code{session.CodeMode, session.CodePolicy, session.CodeEncryption,
		session.CodeBusy, session.CodeFull, session.CodeDraining, session.CodeShuttingDown, session.CodeFailed} {
		reasons = append(reasons, string(c))
	}
	return reasons
}

var (
	// errDenied is wrapped by errors about something that a host may not have.
	errDenied = errors.New("not allowed")
	// errPolicy is wrapped by the reason for the end of a session that a new policy does not
	// permit.
	errPolicy = errors.New("the policy has changed")
)

// The reasons for which a host gets no session, or loses it.
var (
	errFull         = errors.New("the maximum number of hosts is connected (--max-hosts)")
	errSessions     = errors.New("this key has its maximum number of sessions (max-sessions in the policy)")
	errReplaced     = errors.New("a newer session of this host's name and key took its place; two hosts with one key need a --host-name each")
	errDraining     = errors.New("the I/O unit refuses hosts during maintenance; `splitnic iounit undrain` there ends this")
	errDisconnected = errors.New("the host was disconnected by hand; it may come back")
	errShuttingDown = errors.New("the I/O unit is shutting down")
	errEnding       = errors.New("this host's last session is still being ended; if that lasts, its interface on the network card hangs")
)

// errUnbound is the reason for refusing a session without binding if the policy requires it.
var errUnbound = fmt.Errorf("%w: a session without the feature bind, which `require-bind` in the policy asks for; update splitnic on the host", errDenied)

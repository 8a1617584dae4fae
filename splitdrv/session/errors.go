package session

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

var (
	// ErrPeerGone is wrapped by Err when the connection ended without a bye:
	// the peer was killed, its machine died, or the network between broke.
	ErrPeerGone = errors.New("the peer is gone")
	// ErrNotSplitnic is wrapped by the error about a peer that speaks
	// something else.
	ErrNotSplitnic = errors.New("not a splitnic peer; check the address and the port")
	// ErrSecurityMode is wrapped when one side is insecure and one is not.
	ErrSecurityMode = errors.New("start both with --insecure or neither")
	// ErrFrame is wrapped by the error about a frame that is too long or cut.
	ErrFrame = errors.New("broken frame")
	// ErrMessage is wrapped by the error about a message with a value that is
	// not allowed.
	ErrMessage = errors.New("invalid message")
	// ErrUnexpected is wrapped by the error about a message out of order.
	ErrUnexpected = errors.New("unexpected message")
	// ErrTooManyHandshakes is wrapped by the error about a connection that was dropped
	// before it was authenticated, because newer ones needed its place.
	ErrTooManyHandshakes = errors.New("too many connections in their handshake")
	// ErrTooManyHandshakesAddress is the same, where the newer ones came from the
	// same address.
	ErrTooManyHandshakesAddress = errors.New("too many connections in their handshake from one address")
	// ErrTooOften is wrapped by the error about a host that was refused because
	// its key, or without keys its address, opens sessions too fast.
	ErrTooOften = errors.New("sessions are opened too often")
	// ErrRevoked is wrapped by the reason why a key is not trusted that is
	// listed as revoked.
	ErrRevoked = errors.New("it is in the list of revoked keys")
	// ErrOrder is returned by a handshake step that was called out of turn.
	ErrOrder = errors.New("handshake step called out of order")
)

// errOwn is wrapped by the error about a message that this side was about to
// send.
var errOwn = errors.New("own")

var errNotPinned = errors.New("its fingerprint is not in the list")

// UntrustedError says that one side did not accept the other's key.
type UntrustedError struct {
	Peer        string      // "the I/O unit" or "the host"
	Addr        string      // of the peer
	Fingerprint Fingerprint // the key that was not accepted
	Ours        bool        // the peer did not accept ours
	Issued      bool        // when Ours: an authority issued our certificate
	// Reason is why we did not accept the peer's; when Ours, what this side
	// itself finds wrong with its certificate, or nil.
	Reason error
}

// Error says whose key is to be trusted where.
func (e *UntrustedError) Error() string {
	if e.Ours {
		s := fmt.Sprintf("%s at %s does not trust this side's key %v; ", e.Peer, e.Addr, e.Fingerprint)
		switch {
		case as[purposeError](e.Reason):
			return s + e.Reason.Error()
		case e.Reason != nil:
			return s + untimelyFix(e.Reason)
		case e.Issued:
			return s + fmt.Sprintf("the log there says what is wrong with its certificate, or add it there with --trust %v",
				e.Fingerprint)
		default:
			return s + fmt.Sprintf("add it there with --trust %v", e.Fingerprint)
		}
	}
	s := fmt.Sprintf("%s at %s has key %v which is not trusted here; ", e.Peer, e.Addr, e.Fingerprint)
	switch {
	case errors.Is(e.Reason, ErrRevoked):
		s += "it needs a new one, made with `splitnic keygen`"
	case expired(e.Reason):
		return s + untimelyFix(e.Reason)
	case as[purposeError](e.Reason), as[nameError](e.Reason):
		return s + e.Reason.Error()
	default:
		s += fmt.Sprintf("add it with --trust %v", e.Fingerprint)
	}
	if e.Reason != nil && !errors.Is(e.Reason, errNotPinned) {
		s += " (" + e.Reason.Error() + ")"
	}
	return s
}

// Unwrap is the reason, if there is one.
func (e *UntrustedError) Unwrap() error { return e.Reason }

// RevokedError says that this side ended a connection because the peer, which
// was trusted when it began, is trusted no longer.
type RevokedError struct {
	Peer        string // "the I/O unit" or "the host"
	Addr        string // of the peer
	Fingerprint Fingerprint
	Reason      error
}

// Error names the key and the reason.
func (e *RevokedError) Error() string {
	return fmt.Sprintf("key %v is no longer trusted: %v", e.Fingerprint, e.Reason)
}

// Unwrap is the reason.
func (e *RevokedError) Unwrap() error { return e.Reason }

// Code says in one word why a session was refused or ended. A peer may use
// others.
type Code string

// The codes.
const (
	CodeVersion      Code = "version"       // no common protocol version
	CodeBadHello     Code = "bad-hello"     // the hello has a value that is not allowed
	CodeMode         Code = "mode"          // the transfer mode is not available
	CodeBusy         Code = "busy"          // not now
	CodeFull         Code = "full"          // as many sessions as there can be
	CodePolicy       Code = "policy"        // this peer may not have what it asked for, or any more what it has
	CodeRevoked      Code = "revoked"       // this peer's key is trusted no longer
	CodeDraining     Code = "draining"      // the I/O unit refuses hosts during maintenance
	CodeDisconnected Code = "disconnected"  // somebody has ended the session by hand
	CodeShuttingDown Code = "shutting-down" // the process was told to end
	CodeProtocol     Code = "protocol"      // the peer broke the protocol
	CodeFailed       Code = "failed"        // something broke on this side
	CodeElsewhere    Code = "elsewhere"     // the host uses another I/O unit, and has no need for this one
)

// Codes are all codes of this version.
func Codes() []Code {
	return []Code{CodeVersion, CodeBadHello, CodeMode, CodeBusy, CodeFull, CodePolicy, CodeRevoked, CodeDraining,
		CodeDisconnected, CodeShuttingDown, CodeProtocol, CodeFailed, CodeElsewhere}
}

// retry reports whether another attempt may find it otherwise.
func (c Code) retry() bool {
	return c == CodeBusy || c == CodeFull || c == CodeDraining || c == CodeShuttingDown
}

// RefusedError is the I/O unit's refusal of a session.
type RefusedError struct {
	Code    Code
	Message string // for people
	Retry   bool   // it may work later, with the same I/O unit
	// After is how long it will not work; 0 if the I/O unit does not say.
	After time.Duration
}

// Error gives the I/O unit's reason.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("the I/O unit refused the session: %s (%s)", e.Message, e.Code)
}

// Versions is a range of protocol versions, both included.
type Versions struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// String is the range in words.
func (v Versions) String() string {
	if v.Min == v.Max {
		return fmt.Sprintf("version %d", v.Min)
	}
	return fmt.Sprintf("versions %d to %d", v.Min, v.Max)
}

// VersionError says that there is no protocol version that both sides speak.
type VersionError struct {
	Local, Remote Versions
}

// Error names both ranges.
func (e *VersionError) Error() string {
	older := "this side"
	if e.Remote.Max < e.Local.Min {
		older = "the peer"
	}
	return fmt.Sprintf("no common protocol version: this side speaks %v, the peer %v; update %s", e.Local, e.Remote, older)
}

// ByeError is the peer's orderly end of the session.
type ByeError struct {
	Code    Code
	Message string // for people
}

// Error gives the peer's reason.
func (e *ByeError) Error() string {
	return fmt.Sprintf("the peer ended the session: %s (%s)", e.Message, e.Code)
}

// FieldError says that a message of the peer's has a field with a value that is
// not allowed. It is an ErrMessage.
type FieldError struct {
	Field string
	Value string // as it came, fit for a log
	Must  string // what it must be
}

// Error names the field, the value and what it must be.
func (e *FieldError) Error() string {
	return fmt.Sprintf("%v: %s is %s, %s", ErrMessage, e.Field, e.Value, e.Must)
}

// Unwrap returns ErrMessage.
func (e *FieldError) Unwrap() error { return ErrMessage }

// invalid is the error about a field's value.
func invalid(field string, value any, format string, args ...any) error {
	shown := text(fmt.Sprint(value))
	if _, ok := value.(fmt.Stringer); !ok && strings.ContainsFunc(shown, func(r rune) bool { return r < '0' || r > '9' }) {
		shown = fmt.Sprintf("%q", shown)
	}
	return &FieldError{Field: field, Value: shown, Must: fmt.Sprintf(format, args...)}
}

const maxText = 512 // bytes of a text for people

// text makes a peer's words fit for a log: one line of printable characters.
func text(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

func as[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

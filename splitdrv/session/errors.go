package session

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/splitnic/splitnic/internal/printable"
)

var (
	// ErrPeerGone is wrapped by Err if the connection ended without a bye: the peer was
	// killed, its machine died, or the network failed.
	ErrPeerGone = errors.New("the peer is gone")
	// ErrNotSplitnic is wrapped by the error about a peer with another protocol.
	ErrNotSplitnic = errors.New("not a splitnic peer; check the address and the port")
	// ErrSecurityMode is wrapped if only one side is insecure.
	ErrSecurityMode = errors.New("start both with --insecure or neither")
	// ErrFrame is wrapped by the error about a frame that is too long.
	ErrFrame = errors.New("broken frame")
	// ErrMessage is wrapped by the error about a message with an invalid value.
	ErrMessage = errors.New("invalid message")
	// ErrUnexpected is wrapped by the error about a message out of order.
	ErrUnexpected = errors.New("unexpected message")
	// ErrTooManyHandshakes is wrapped by the error about a connection that was dropped before
	// it was authenticated, because newer ones needed its place.
	ErrTooManyHandshakes = errors.New("too many connections in their handshake")
	// ErrTooManyHandshakesAddress is the same if the newer ones came from the same address.
	ErrTooManyHandshakesAddress = errors.New("too many connections in their handshake from one address")
	// ErrTooOften is wrapped by the error about a host that was refused because its key, or
	// in insecure mode its address, opens sessions too fast.
	ErrTooOften = errors.New("sessions are opened too often")
	// ErrOrder is returned by a handshake step that was called out of turn.
	ErrOrder = errors.New("handshake step called out of order")
)

// errOwn is wrapped by the error about an invalid message of this side.
var errOwn = errors.New("own")

// Code is the reason for which a session was refused or has ended. A peer may use others.
type Code string

// Codes of this version.
const (
	CodeVersion      Code = "version"       // there is no common protocol version
	CodeBadHello     Code = "bad-hello"     // the hello has an invalid value
	CodeMode         Code = "mode"          // the transfer mode is not available
	CodeBusy         Code = "busy"          // the peer may try again later
	CodeFull         Code = "full"          // the largest number of sessions is reached
	CodePolicy       Code = "policy"        // the policy does not permit what the peer requests or has
	CodeEncryption   Code = "encryption"    // one side requires encryption, the other cannot or must not have it
	CodeRevoked      Code = "revoked"       // the peer's key is no longer trusted
	CodeDraining     Code = "draining"      // the I/O unit refuses hosts during maintenance
	CodeDisconnected Code = "disconnected"  // an administrator has ended the session
	CodeShuttingDown Code = "shutting-down" // the process ends
	CodeProtocol     Code = "protocol"      // the peer has violated the protocol
	CodeFailed       Code = "failed"        // this side has failed
	CodeElsewhere    Code = "elsewhere"     // the host uses another I/O unit
)

// Codes returns all codes of this version.
func Codes() []Code {
	return []Code{CodeVersion, CodeBadHello, CodeMode, CodeBusy, CodeFull, CodePolicy, CodeEncryption, CodeRevoked,
		CodeDraining,
		CodeDisconnected, CodeShuttingDown, CodeProtocol, CodeFailed, CodeElsewhere}
}

// retry reports whether another attempt may succeed.
func (c Code) retry() bool {
	return c == CodeBusy || c == CodeFull || c == CodeDraining || c == CodeShuttingDown
}

// RefusedError is the I/O unit's refusal of a session.
type RefusedError struct {
	Code    Code
	Message string // for display
	Retry   bool   // another attempt with the same I/O unit may succeed later
	// After is the time for which attempts will fail; 0: unknown.
	After time.Duration
}

// Error returns a text with the I/O unit's reason.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("the I/O unit refused the session: %s (%s)", e.Message, e.Code)
}

// Versions is a range of protocol versions, including Min and Max.
type Versions struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// String describes the range in words.
func (v Versions) String() string {
	if v.Min == v.Max {
		return fmt.Sprintf("version %d", v.Min)
	}
	return fmt.Sprintf("versions %d to %d", v.Min, v.Max)
}

// VersionError means that there is no protocol version that both sides support.
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

// ByeError means that the peer has ended the session in good order.
type ByeError struct {
	Code    Code
	Message string // for display
}

// Error returns a text with the peer's reason.
func (e *ByeError) Error() string {
	return fmt.Sprintf("the peer ended the session: %s (%s)", e.Message, e.Code)
}

// FieldError means that a message of the peer has a field with an invalid value. It wraps
// ErrMessage.
type FieldError struct {
	Field string
	Value string // the value, in printable characters
	Must  string // description of valid values
}

// Error names the field, the value and the valid values.
func (e *FieldError) Error() string {
	return fmt.Sprintf("%v: %s is %s, %s", ErrMessage, e.Field, e.Value, e.Must)
}

func (e *FieldError) Unwrap() error { return ErrMessage }

func invalid(field string, value any, format string, args ...any) error {
	shown := text(fmt.Sprint(value))
	if _, ok := value.(fmt.Stringer); !ok && strings.ContainsFunc(shown, func(r rune) bool { return r < '0' || r > '9' }) {
		shown = fmt.Sprintf("%q", shown)
	}
	return &FieldError{Field: field, Value: shown, Must: fmt.Sprintf(format, args...)}
}

const maxText = 512 // bytes of a text for display

// text returns a text of the peer in a form that is safe for a log: one line of printable
// characters.
func text(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	return printable.Text(s)
}

func as[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

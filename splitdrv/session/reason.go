package session

import (
	"errors"
	"os"

	"github.com/splitnic/splitnic/splitdrv/session/internal/identity"
)

// fields are those whose values are checked.
var fields = []string{
	"magic", "versions", "features", "name", "software", "modes", "mode", "queues", "pools", "max_mtu", "mac", "mtu",
	"session", "offloads", "ciphers", "cipher", "encrypt", "control_receives", "channels", "qpn", "psn", "proof",
	"platform", "id", "step", "macs", "own", "reason",
}

// reasons are the other reasons for the end of a connection, with stable names, the more
// specific ones first.
var reasons = []struct {
	name string
	is   func(error) bool
}{
	{"revoked", is(ErrRevoked)},
	{"expired", identity.Expired},
	{"untrusted", func(err error) bool { return as[*UntrustedError](err) || as[*RevokedError](err) }},
	{"version", as[*VersionError]},
	{string(CodeElsewhere), isElsewhere},
	{"bye", as[*ByeError]},
	{"security-mode", is(ErrSecurityMode)},
	{"not-splitnic", is(ErrNotSplitnic)},
	{"frame", is(ErrFrame)},
	{"message", is(ErrMessage)},
	{"out-of-turn", is(ErrUnexpected)},
	{"too-often", is(ErrTooOften)},
	{"too-many-handshakes", is(ErrTooManyHandshakes)},
	{"too-many-handshakes-address", is(ErrTooManyHandshakesAddress)},
	{"late", is(os.ErrDeadlineExceeded)},
	{"gone", is(ErrPeerGone)},
}

// isElsewhere reports whether the peer has said that it uses another I/O unit.
func isElsewhere(err error) bool {
	bye, ok := errors.AsType[*ByeError](err)
	return ok && bye.Code == CodeElsewhere
}

// reasonOther is the name of all other reasons.
const reasonOther = "other"

// Reason returns a stable name of the reason for which a connection has ended or did not
// become a session, for counters: "field-" and the name of the field with an invalid value,
// or one of a few words.
func Reason(err error) string {
	if field, ok := errors.AsType[*FieldError](err); ok {
		return fieldReason(field.Field)
	}
	for _, r := range reasons {
		if r.is(err) {
			return r.name
		}
	}
	return reasonOther
}

// Reasons returns all values that Reason can return.
func Reasons() []string {
	var names []string
	for _, f := range fields {
		names = append(names, fieldReason(f))
	}
	for _, r := range reasons {
		names = append(names, r.name)
	}
	return append(names, reasonOther)
}

func fieldReason(field string) string { return "field-" + field }

package identity

import (
	"errors"
	"fmt"
)

// ErrRevoked is wrapped by the reason for not trusting a revoked key.
var ErrRevoked = errors.New("it is in the list of revoked keys")

var errNotPinned = errors.New("its fingerprint is not in the list")

// UntrustedError means that one side does not trust the other's key.
type UntrustedError struct {
	Peer        string      // "the I/O unit" or "the host"
	Addr        string      // address of the peer
	Fingerprint Fingerprint // of the key that is not trusted
	Ours        bool        // the peer does not trust this side's key
	Issued      bool        // Ours, and an authority has issued this side's certificate
	// Reason is the reason for not trusting the peer's key. If Ours, it is what this side
	// itself finds wrong with its certificate, or nil.
	Reason error
}

// Error describes which key has to be trusted where.
func (e *UntrustedError) Error() string {
	if e.Ours {
		s := fmt.Sprintf("%s at %s does not trust this side's key %v; ", e.Peer, e.Addr, e.Fingerprint)
		switch {
		case errors.As(e.Reason, new(purposeError)):
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
	case Expired(e.Reason):
		return s + untimelyFix(e.Reason)
	case errors.As(e.Reason, new(purposeError)), errors.As(e.Reason, new(nameError)):
		return s + e.Reason.Error()
	default:
		s += fmt.Sprintf("add it with --trust %v", e.Fingerprint)
	}
	if e.Reason != nil && !errors.Is(e.Reason, errNotPinned) {
		s += " (" + e.Reason.Error() + ")"
	}
	return s
}

// Unwrap returns the reason, if there is one.
func (e *UntrustedError) Unwrap() error { return e.Reason }

// RevokedError means that this side has ended a connection because it no longer trusts the
// peer.
type RevokedError struct {
	Fingerprint Fingerprint
	Reason      error
}

// Error names the key and the reason.
func (e *RevokedError) Error() string {
	return fmt.Sprintf("key %v is no longer trusted: %v", e.Fingerprint, e.Reason)
}

func (e *RevokedError) Unwrap() error { return e.Reason }

package identity

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"strings"
)

// Fingerprint identifies a public key, independently of certificates: it is the SHA-256 of
// its SubjectPublicKeyInfo in DER.
type Fingerprint [sha256.Size]byte

const fingerprintPrefix = "sha256:"

var errFingerprint = errors.New(`a fingerprint is "sha256:" and 43 characters of base64url, as printed by "splitnic keygen"`)

// String returns "sha256:" and the hash in unpadded base64url.
func (f Fingerprint) String() string {
	return fingerprintPrefix + base64.RawURLEncoding.EncodeToString(f[:])
}

// ParseFingerprint parses the result of String. The error does not contain s, which could be
// a secret in the wrong place.
func ParseFingerprint(s string) (Fingerprint, error) {
	encoded, ok := strings.CutPrefix(s, fingerprintPrefix)
	// The length is checked because the decoder skips line ends.
	if !ok || len(encoded) != base64.RawURLEncoding.EncodedLen(sha256.Size) {
		return Fingerprint{}, errFingerprint
	}
	hash, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil || len(hash) != sha256.Size {
		return Fingerprint{}, errFingerprint
	}
	return Fingerprint(hash), nil
}

// FingerprintOf returns the fingerprint of the key of a certificate.
func FingerprintOf(cert *x509.Certificate) Fingerprint {
	return sha256.Sum256(cert.RawSubjectPublicKeyInfo)
}

// Identity is an authenticated peer.
type Identity struct {
	Name        string // from the trust entry or the certificate; may be empty
	Fingerprint Fingerprint
	Insecure    bool // not verified; Fingerprint changes with every start
}

// String returns the name, if there is one, and the fingerprint.
func (i Identity) String() string {
	switch {
	case i.Insecure:
		return "unauthenticated " + i.Fingerprint.String()
	case i.Name != "":
		return i.Name + " " + i.Fingerprint.String()
	default:
		return i.Fingerprint.String()
	}
}

const (
	MaxNameLength = 253 // as for host names
	maxWord       = 64  // bytes of a feature, a session identifier, a mode
)

// ValidName reports whether s can be the name of a host or an I/O unit, also in a trust
// entry, a log or a label of a metric: 1 to 253 letters, digits, '.', '_' or '-'.
func ValidName(s string) bool { return validToken(s, MaxNameLength) }

// ValidWord reports whether s can be a word of a message, such as a feature or a mode.
func ValidWord(s string) bool { return validToken(s, maxWord) }

func validToken(s string, most int) bool {
	if s == "" || len(s) > most {
		return false
	}
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

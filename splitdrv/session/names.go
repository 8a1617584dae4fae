package session

import "github.com/splitnic/splitnic/splitdrv/session/internal/identity"

// The types of what a side shows and trusts.
type (
	// Key is a private Ed25519 key.
	Key = identity.Key
	// Fingerprint identifies a public key, independently of certificates.
	Fingerprint = identity.Fingerprint
	// Identity is an authenticated peer.
	Identity = identity.Identity
	// Trust determines which peers are trusted.
	Trust = identity.Trust
	// Term is the time for which something is valid.
	Term = identity.Term

	// UntrustedError means that one side does not trust the other's key.
	UntrustedError = identity.UntrustedError
	// RevokedError means that this side no longer trusts the peer of a connection.
	RevokedError = identity.RevokedError
)

// ErrRevoked is wrapped by the reason for not trusting a revoked key.
var ErrRevoked = identity.ErrRevoked

// SeedSize is the size of a seed in bytes.
const SeedSize = identity.SeedSize

// GenerateKey generates a new key.
func GenerateKey() (*Key, error) { return identity.GenerateKey() }

// KeyFromSeed returns the key of a seed, the same one each time.
func KeyFromSeed(seed [SeedSize]byte) *Key { return identity.KeyFromSeed(seed) }

// LoadKey reads a key from a file that only its owner may access.
func LoadKey(path string) (*Key, error) { return identity.LoadKey(path) }

// SaveKey writes a key to a new file that only its owner can read.
func SaveKey(path string, k *Key) error { return identity.SaveKey(path, k) }

// ParseFingerprint parses the text of a fingerprint.
func ParseFingerprint(s string) (Fingerprint, error) { return identity.ParseFingerprint(s) }

// ValidName reports whether s can be the name of a host or an I/O unit.
func ValidName(s string) bool { return identity.ValidName(s) }

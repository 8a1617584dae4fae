package bench

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/splitnic/splitnic/splitdrv/session"
)

// minSecret is the smallest number of characters of a secret. A client that connects gets the
// server's public key, and can try secrets offline.
const minSecret = 20

// Secret is the shared secret of two ends. The keys of both are derived from it. It does not print.
type Secret struct{ text string }

// NewSecret returns a random secret of 128 bits.
func NewSecret() Secret { return Secret{strings.ToLower(rand.Text())} }

// ParseSecret returns the secret with that text, which must not be guessable.
func ParseSecret(text string) (Secret, error) {
	text = strings.TrimSpace(text)
	if len(text) < minSecret {
		return Secret{}, fmt.Errorf("the secret has %d characters, must have at least %d random ones; omit it at the --listen end to generate one", len(text), minSecret)
	}
	return Secret{text}, nil
}

// Reveal returns the text for ParseSecret.
func (s Secret) Reveal() string { return s.text }

// String does not reveal the secret.
func (s Secret) String() string { return "(secret)" }

// GoString does not reveal the secret for %#v.
func (s Secret) GoString() string { return "bench.Secret{}" }

// ServerSecurity returns the security of the end that listens. It trusts only an end with the secret.
func (s Secret) ServerSecurity() (*session.Security, error) { return s.security("server", "client") }

// ClientSecurity returns the security of the other end.
func (s Secret) ClientSecurity() (*session.Security, error) { return s.security("client", "server") }

func (s Secret) security(self, other string) (*session.Security, error) {
	if s.text == "" {
		return nil, errors.New("bench: there is no secret")
	}
	own, err := s.key(self)
	if err != nil {
		return nil, err
	}
	peer, err := s.key(other)
	if err != nil {
		return nil, err
	}
	trust := &session.Trust{}
	if err := trust.Add(other + "=" + peer.Fingerprint().String()); err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	return session.NewSecurity(own, "", trust)
}

// key derives the key of one end.
func (s Secret) key(role string) (*session.Key, error) {
	b, err := hkdf.Key(sha256.New, []byte(s.text), nil, "splitnic bench "+role, session.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("bench: derive the key of the %s: %w", role, err)
	}
	return session.KeyFromSeed([session.SeedSize]byte(b)), nil
}

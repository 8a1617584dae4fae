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

// minSecret is how many characters a secret has at least. Whoever connects sees
// the server's public key, and can try secrets against it at leisure.
const minSecret = 20

// Secret is what two ends share, so that each knows the other's key: both keys
// are derived from it. It prints as nothing that tells what it is.
type Secret struct{ text string }

// NewSecret makes a random secret of 128 bits.
func NewSecret() Secret { return Secret{strings.ToLower(rand.Text())} }

// ParseSecret is the secret with that text, which must not be guessable.
func ParseSecret(text string) (Secret, error) {
	text = strings.TrimSpace(text)
	if len(text) < minSecret {
		return Secret{}, fmt.Errorf("the secret has %d characters, must have at least %d random ones; omit it at the --listen end to generate one", len(text), minSecret)
	}
	return Secret{text}, nil
}

// Reveal is the text that ParseSecret takes.
func (s Secret) Reveal() string { return s.text }

// String does not tell.
func (s Secret) String() string { return "(secret)" }

// GoString does not tell either, for %#v.
func (s Secret) GoString() string { return "bench.Secret{}" }

// ServerSecurity is for the end that listens: it talks only to who has the
// secret.
func (s Secret) ServerSecurity() (*session.Security, error) { return s.security("server", "client") }

// ClientSecurity is for the other end.
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

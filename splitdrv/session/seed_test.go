package session_test

import (
	"testing"

	"github.com/splitnic/splitnic/splitdrv/session"
)

func TestKeyFromSeed(t *testing.T) {
	a, b := [session.SeedSize]byte{1}, [session.SeedSize]byte{2}
	first := session.KeyFromSeed(a)
	if again := session.KeyFromSeed(a); again.Fingerprint() != first.Fingerprint() {
		t.Error("one seed makes two keys")
	}
	if session.KeyFromSeed(a).Fingerprint() == session.KeyFromSeed(b).Fingerprint() {
		t.Error("two seeds make one key")
	}
}

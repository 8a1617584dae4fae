package session_test

import (
	"testing"

	"github.com/splitnic/splitnic/splitdrv/session"
)

func TestKeyFromSeed(t *testing.T) {
	a, b := [session.SeedSize]byte{1}, [session.SeedSize]byte{2}
	if session.KeyFromSeed(a).Fingerprint() != session.KeyFromSeed(a).Fingerprint() {
		t.Error("one seed makes two keys")
	}
	if session.KeyFromSeed(a).Fingerprint() == session.KeyFromSeed(b).Fingerprint() {
		t.Error("two seeds make one key")
	}
}

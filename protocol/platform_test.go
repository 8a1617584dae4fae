package protocol

import (
	"crypto/sha256"
	"errors"
	"testing"
)

// TestPlatformOf compares the identifier with a value that another implementation has computed, from
// docs/protocol.md:
//
//	import hashlib; key, run = bytes(range(32)), bytes(range(16))
//	hashlib.sha256(b"splitnic platform" + key + run).hexdigest()[:16]
func TestPlatformOf(t *testing.T) {
	var key [sha256.Size]byte
	var run Run
	for i := range key {
		key[i] = byte(i)
	}
	copy(run[:], key[:])
	got := PlatformOf(key, run)
	if want := "f02aeb908daef381"; got.String() != want {
		t.Errorf("%v, not %s", got, want)
	}
	other := run
	other[15]++
	if PlatformOf(key, other) == got {
		t.Error("another run has the same identifier")
	}
	key[0]++
	if PlatformOf(key, run) == got {
		t.Error("another key has the same identifier")
	}
}

func TestPlatformText(t *testing.T) {
	var p Platform
	if err := p.UnmarshalText([]byte("00000000000000ff")); err != nil || p != 255 || p.String() != "00000000000000ff" {
		t.Errorf("%v, %v", p, err)
	}
	for _, s := range []string{"", "ff", "00000000000000ff00", "00000000000000fg"} {
		if err := p.UnmarshalText([]byte(s)); err == nil {
			t.Errorf("%q is the identifier %v", s, p)
		}
	}
	if err := p.UnmarshalText([]byte("0000000000000000")); !errors.Is(err, ErrPlatform) {
		t.Errorf("all zero: %v", err)
	}
	var r Run
	if err := r.UnmarshalText([]byte("00000000000000000000000000000000")); !errors.Is(err, ErrPlatform) {
		t.Errorf("a run of zero: %v", err)
	}
}

package iounit

import (
	"testing"

	"github.com/splitnic/splitnic/splitdrv/session"
)

// TestShownName has a host call itself like another one. Other hosts must be told the name under which
// its key is trusted, or the key.
func TestShownName(t *testing.T) {
	key := session.Fingerprint{1, 2, 3}
	byKey := "sha256-" + key.String()[len("sha256:"):]
	for name, c := range map[string]struct {
		id   session.Identity
		want string
	}{
		"trusted under a name":            {session.Identity{Name: "alpha", Fingerprint: key}, "alpha"},
		"trusted by its key":              {session.Identity{Fingerprint: key}, byKey},
		"under what is no name of a host": {session.Identity{Name: "*.example", Fingerprint: key}, byKey},
		"without keys":                    {session.Identity{Fingerprint: key, Insecure: true}, "beta"},
		"without keys, with a name":       {session.Identity{Name: "alpha", Fingerprint: key, Insecure: true}, "beta"},
	} {
		h := &host{peer: func() session.Identity { return c.id }, hello: session.Hello{Name: "beta"}}
		if got := h.shown(); got != c.want || !session.ValidName(got) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

package bench

import (
	"fmt"
	"strings"
	"testing"
)

func TestSecret(t *testing.T) {
	s := NewSecret()
	if len(s.Reveal()) < minSecret || s == NewSecret() {
		t.Errorf("a secret of %d characters", len(s.Reveal()))
	}
	again, err := ParseSecret(s.Reveal() + "\n")
	if err != nil || again != s {
		t.Errorf("it does not come back: %v", err)
	}
	if text := fmt.Sprintf("%v %+v %#v %s", s, s, s, s); strings.Contains(text, s.Reveal()) {
		t.Errorf("it prints as %s", text)
	}
	server, err := s.ServerSecurity()
	if err != nil {
		t.Fatal(err)
	}
	client, err := s.ClientSecurity()
	if err != nil {
		t.Fatal(err)
	}
	if server.Fingerprint() == client.Fingerprint() {
		t.Error("both ends have one key: a server could talk to itself")
	}
	for _, bad := range []string{"", "password", strings.Repeat(" ", 40), strings.Repeat("x", minSecret-1)} {
		if _, err := ParseSecret(bad); err == nil {
			t.Errorf("%q is a secret", bad)
		}
	}
	if _, err := (Secret{}).ServerSecurity(); err == nil {
		t.Error("no secret is one")
	}
}

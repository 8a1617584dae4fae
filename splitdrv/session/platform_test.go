package session

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/session/internal/identity"
)

// TestPlatform checks that both sides agree on both platform identifiers. They must stay the same
// while a process keeps its key, and be others in the next process with this key.
func TestPlatform(t *testing.T) {
	hostKey, unitKey := newKey(t), newKey(t)
	start := func() (host, unit *Security) {
		return secured(t, hostKey, unitKey.Fingerprint().String()), secured(t, unitKey, hostKey.Fingerprint().String())
	}
	host, unit := start()
	ln, _ := listen(t, ServerConfig{Security: unit})
	for range 2 { // sessions of the same processes
		c, s := establish(t, ln, host)
		if c.Platform() == 0 || c.Platform() != host.Platform() || s.PeerPlatform() != host.Platform() {
			t.Errorf("the host is %v, in its session %v, for the I/O unit %v", host.Platform(), c.Platform(),
				s.PeerPlatform())
		}
		if s.Platform() == 0 || s.Platform() != unit.Platform() || c.PeerPlatform() != unit.Platform() {
			t.Errorf("the I/O unit is %v, in its session %v, for the host %v", unit.Platform(), s.Platform(),
				c.PeerPlatform())
		}
	}
	again, _ := start()
	if again.Platform() == host.Platform() {
		t.Error("the next process with the key has the same identifier")
	}
}

// TestPlatformUnknown tests peers of earlier versions. A hello without a run must get a welcome
// without an identifier, byte for byte as in earlier versions, and a welcome without an
// identifier must be accepted.
func TestPlatformUnknown(t *testing.T) {
	s := &Server{Conn: &Conn{authentication: authentication{security: insecure(t)}}}
	w := testWelcome()
	w.Platform, w.Run = s.issue(protocol.Run{})
	b, err := json.Marshal(welcomeMessage{typeWelcome, w})
	if err != nil || strings.Contains(string(b), `"run"`) || strings.Contains(string(b), `"platform"`) {
		t.Errorf("%s, %v", b, err)
	}
	if s.Platform() != 0 || s.PeerPlatform() != 0 {
		t.Errorf("this side %v, the host %v", s.Platform(), s.PeerPlatform())
	}
	c := &Client{Conn: s.Conn}
	if err := c.checkIssued(&w); err != nil || c.PeerPlatform() != 0 {
		t.Errorf("%v, the I/O unit %v", err, c.PeerPlatform())
	}
}

// TestPlatformRefused has an I/O unit issue an identifier that does not follow from the host's key
// and run, or although a run is missing. The host must refuse each.
func TestPlatformRefused(t *testing.T) {
	host := insecure(t)
	c := &Client{Conn: &Conn{authentication: authentication{security: host}}}
	made := host.current()
	c.showed.Store(&made)
	c.verdict.Store(&identity.Verdict{})
	w := testWelcome()
	w.Platform, w.Run = host.Platform(), protocol.Run{1}
	if err := c.checkIssued(&w); err != nil {
		t.Error(err)
	}
	w.Platform++
	if err := c.checkIssued(&w); !isFieldError(err, "platform") {
		t.Errorf("another's identifier: %v", err)
	}
	hello := testHello()
	w = testWelcome()
	w.Version, w.Features, w.Offloads = 1, nil, 0
	w.Platform, w.Run = 1, protocol.Run{1}
	if err := w.validate(&hello); !isFieldError(err, "platform") {
		t.Errorf("to a host without a run: %v", err)
	}
	hello.Run = protocol.Run{2}
	if err := w.validate(&hello); err != nil {
		t.Error(err)
	}
	w.Run = protocol.Run{}
	if err := w.validate(&hello); !isFieldError(err, "platform") {
		t.Errorf("without the I/O unit's run: %v", err)
	}
}

func isFieldError(err error, field string) bool {
	var f *FieldError
	return errors.As(err, &f) && f.Field == field
}

package iounit

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// TestLogIsNotFlooded checks that neither rejected connections nor requests of a host can flood
// the log.
func TestLogIsNotFlooded(t *testing.T) {
	const tries = 500
	var log bytes.Buffer
	count := func(what string) {
		t.Helper()
		// More lines are allowed if the test runs slowly.
		if n := bytes.Count(log.Bytes(), []byte("\n")); n == 0 || n > tries/2 {
			t.Errorf("%s: %d lines about %d attempts", what, n, tries)
		}
		log.Reset()
	}
	c := newClient(t, hostWith("all", "02:00:*"))
	c.unit.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	c.s.host.log = c.unit.cfg.Log
	for range tries {
		c.unit.Rejected(&net.TCPAddr{}, session.ErrTooManyHandshakes)
	}
	count("connections")
	if n := c.unit.Status().Refused; n != tries {
		t.Errorf("%d refusals were counted, want %d", n, tries)
	}
	for i := range tries {
		c.mac(protocol.MAC{6, 0, 0, 0, byte(i >> 8), byte(i)}, protocol.CfgDenied)
	}
	count("refused requests")
	for i := range tries {
		c.mac(protocol.MAC{2, 0, 1, 0, byte(i >> 8), byte(i)}, protocol.CfgOK)
	}
	if n := bytes.Count(log.Bytes(), []byte("\n")); n > tries/2 {
		t.Errorf("%d lines about %d new addresses", n, tries)
	}
}

// TestRefusalsAreLoggedOnce has hosts connect many times that get no session. Each different
// refusal must be logged once, until the policy changes.
func TestRefusalsAreLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	u := newUnit(t, Config{})
	u.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	comes := func(host, from string, code session.Code, err error) func() {
		return func() {
			if code == "" {
				u.Rejected(&net.TCPAddr{IP: net.ParseIP(from)}, err)
			} else {
				u.refuse(newcomer(u, host), code, err)
			}
		}
	}
	untrusted := func(key byte) error { return &session.UntrustedError{Fingerprint: session.Fingerprint{key}} }
	// All attempts are different.
	attempts := []func(){
		comes("a", "", session.CodeFull, fmt.Errorf("%w: 1", errFull)),
		comes("a", "", session.CodeFull, errSessions),
		comes("b", "", session.CodeFull, errFull),
		comes("a", "", session.CodePolicy, errDenied),
		comes("a", "", session.CodePolicy, errUnbound),
		comes("a", "", session.CodeBusy, unix.ENOMEM),
		comes("a", "", session.CodeBusy, unix.EMFILE),
		comes("", "192.0.2.1", "", session.ErrTooOften),
		comes("", "192.0.2.2", "", session.ErrTooOften),
		comes("", "192.0.2.1", "", session.ErrMessage),
		comes("", "192.0.2.1", "", untrusted(1)),
		comes("", "192.0.2.1", "", untrusted(2)),
		func() {
			u.over(newcomer(u, "a"), session.ErrPeerGone)
		},
	}
	lines := func() int {
		for range 3 {
			for _, again := range attempts {
				again()
			}
		}
		defer log.Reset()
		return bytes.Count(log.Bytes(), []byte("\n"))
	}
	if n := lines(); n != len(attempts) {
		t.Errorf("%d lines about %d refusals", n, len(attempts))
	}
	if n := lines(); n != 0 {
		t.Errorf("%d lines about the same again", n)
	}
	if n := u.Status().Refused; n != uint64(6*len(attempts)) {
		t.Errorf("%d refusals were counted, want %d", n, 6*len(attempts))
	}
	u.SetPolicy(u.policy.Load())
	if n := lines(); n == 0 {
		t.Error("no line about a refusal by another policy")
	}
}

// newcomer returns a host whose session is refused.
func newcomer(u *Unit, key string) *attachment {
	return &attachment{host: host{s: &session.Server{Conn: new(session.Conn)}, key: key, log: u.cfg.Log}}
}

// TestMACIsKeptUntilItIsChanged checks that another host gets neither the old nor the new address
// until the port has accepted the new one.
func TestMACIsKeptUntilItIsChanged(t *testing.T) {
	c := newClient(t, hostWith("all"))
	c.port.during = func() {
		for _, m := range []protocol.MAC{own, machine} {
			if c.unit.addresses.claim(&c.unit.hosts["b"].host, m, nil) == nil {
				t.Errorf("another host got %v", m)
			}
		}
	}
	c.mac(machine, protocol.CfgOK)
	if err := c.unit.addresses.claim(&c.unit.hosts["b"].host, own, nil); err != nil {
		t.Error(err)
	}
}

package session

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testca"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/session/internal/identity"
)

// living returns the number of connections that the next Update of the Security checks.
func (s *Security) living() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// update calls Update with a Security that is used for nothing else, and expects that it ends
// want connections.
func update(t *testing.T, s, next *Security, want int) {
	t.Helper()
	if n, err := s.Update(next); n != want || err != nil {
		t.Errorf("%d connections ended, %v; want %d", n, err, want)
	}
}

// revoking returns the Security of key that trusts the given entries and has a revoked key.
func revoking(t *testing.T, key *Key, revoked Fingerprint, trusted ...string) *Security {
	t.Helper()
	s := secured(t, key, trusted...)
	if err := s.made.Trust.AddRevoked(testca.File(t, "# stolen\nnode1="+revoked.String()+" # in May\n")); err != nil {
		t.Fatal(err)
	}
	return s
}

// endedAs checks both ends of a connection that the end by has ended for this reason.
func endedAs(t *testing.T, by, of *Conn, reason string) {
	t.Helper()
	var revoked *RevokedError
	if err := waitDone(t, by); !errors.As(err, &revoked) || Reason(err) != reason {
		t.Errorf("ended with %v, which counts as %q, not %q", err, Reason(err), reason)
	}
	var bye *ByeError
	if err := waitDone(t, of); !errors.As(err, &bye) || bye.Code != CodeRevoked {
		t.Errorf("the other end ended with %v", err)
	}
}

func TestUpdateChangesKey(t *testing.T) {
	h, old, next := newKey(t), newKey(t), newKey(t)
	host := secured(t, h, "gw1="+old.Fingerprint().String())
	unit := secured(t, old, h.Fingerprint().String())
	ln, rejected := listen(t, ServerConfig{Security: unit})
	c, s := establish(t, ln, host)

	update(t, unit, secured(t, next, h.Fingerprint().String()), 0)
	if unit.Fingerprint() != next.Fingerprint() {
		t.Errorf("the key is %v", unit.Fingerprint())
	}
	var untrusted *UntrustedError
	if err := knock(t, ln, host); !errors.As(err, &untrusted) || untrusted.Fingerprint != next.Fingerprint() {
		t.Errorf("a host that does not know the new key: %v", err)
	}
	rejected.next(t)
	// An administrator lists both keys under one name.
	update(t, host, secured(t, h, "gw1="+old.Fingerprint().String(), "gw1="+next.Fingerprint().String()), 0)
	c2, _ := establish(t, ln, host)
	if id := c2.Peer(); id.Fingerprint != next.Fingerprint() || id.Name != "gw1" {
		t.Errorf("the new session is with %v", id)
	}
	if c.Err() != nil || s.Err() != nil || c.Peer().Fingerprint != old.Fingerprint() {
		t.Errorf("the old session, with %v, ended: %v, %v", c.Peer(), c.Err(), s.Err())
	}
	// The old key is removed from the list, and the session that still uses it ends.
	update(t, host, secured(t, h, "gw1="+next.Fingerprint().String()), 1)
	endedAs(t, c.Conn, s.Conn, "untrusted")
	if c2.Err() != nil {
		t.Errorf("the new session ended: %v", c2.Err())
	}
}

func TestUpdateEndsSessions(t *testing.T) {
	h, u, other := newKey(t), newKey(t), newKey(t)
	trustsHost, trustsUnit := "alpha="+h.Fingerprint().String(), u.Fingerprint().String()
	for _, tt := range []struct {
		name   string
		byHost bool
		next   *Security
		reason string // empty: the session goes on
	}{
		{"the host's key left the list", false, secured(t, u, other.Fingerprint().String()), "untrusted"},
		{"the host's key was revoked", false, revoking(t, u, h.Fingerprint(), trustsHost), "revoked"},
		{"another key was revoked", false, revoking(t, u, other.Fingerprint(), trustsHost), ""},
		{"the host got another name", false, secured(t, u, "beta="+h.Fingerprint().String()), ""},
		{"the I/O unit's key left the list", true, secured(t, h, other.Fingerprint().String()), "untrusted"},
		{"the I/O unit's key was revoked", true, revoking(t, h, u.Fingerprint(), trustsUnit), "revoked"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			host, unit := secured(t, h, trustsUnit), secured(t, u, trustsHost)
			ln, rejected := listen(t, ServerConfig{Security: unit})
			c, s := establish(t, ln, host)
			changed, by, of := unit, s.Conn, c.Conn
			if tt.byHost {
				changed, by, of = host, c.Conn, s.Conn
			}
			if tt.reason == "" {
				update(t, changed, tt.next, 0)
				if c.Err() != nil || s.Err() != nil {
					t.Errorf("the session ended: %v, %v", c.Err(), s.Err())
				}
				if tt.name == "the host got another name" && s.Peer().Name != "beta" {
					t.Errorf("the host is %v", s.Peer())
				}
				return
			}
			update(t, changed, tt.next, 1)
			endedAs(t, by, of, tt.reason)
			if n := changed.living(); n != 0 {
				t.Errorf("%d connections are left", n)
			}
			err := knock(t, ln, host)
			if at := rejected.next(t); !tt.byHost {
				err = at
			}
			var untrusted *UntrustedError
			if !errors.As(err, &untrusted) || Reason(err) != tt.reason {
				t.Errorf("the next connection: %v", err)
			}
		})
	}
}

func TestUpdateWithAuthority(t *testing.T) {
	a := newAuthority(t)
	host := a.member(t, "node17", x509.ExtKeyUsageClientAuth)
	key := newKey(t)
	unit := func(revoked ...Fingerprint) *Security {
		var trust Trust
		if err := trust.AddCA(a.File); err != nil {
			t.Fatal(err)
		}
		for _, f := range revoked {
			if err := trust.AddRevoked(testca.File(t, f.String())); err != nil {
				t.Fatal(err)
			}
		}
		s, err := NewSecurity(key, a.IssueTo(t, key, "gw1", x509.ExtKeyUsageServerAuth), &trust)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, tt := range []struct {
		name   string
		change func(unit *Security, s *Server) int
		reason string
	}{
		{"the host's key was revoked", func(s *Security, _ *Server) int {
			n,
				_ := s.Update(unit(host.Fingerprint()))
			return n
		}, "revoked"},
		{"the authority's key was revoked", func(s *Security, _ *Server) int {
			n,
				_ := s.Update(unit(identity.FingerprintOf(a.Cert)))
			return n
		}, "revoked"},
		{"another authority", func(s *Security, _ *Server) int {
			n, _ := s.Update(trusting(t, newAuthority(t), newAuthority(t)))
			return n
		}, "untrusted"},
		{"the certificate has expired", func(_ *Security, s *Server) int {
			s.expire(time.Now().Add(59 * time.Minute))
			if s.Err() != nil {
				t.Errorf("ended before its time: %v", s.Err())
			}
			s.expire(time.Now().Add(2 * time.Hour))
			return 1
		}, "expired"},
		{"nothing changed", func(s *Security, _ *Server) int { n, _ := s.Update(unit()); return n }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			judge := unit()
			ln, _ := listen(t, ServerConfig{Security: judge})
			c, s := establish(t, ln, host)
			n := tt.change(judge, s)
			if tt.reason == "" {
				if n != 0 || s.Err() != nil || c.Err() != nil {
					t.Errorf("%d ended: %v, %v", n, s.Err(), c.Err())
				}
				return
			}
			if n != 1 {
				t.Errorf("%d connections ended", n)
			}
			endedAs(t, s.Conn, c.Conn, tt.reason)
		})
	}
}

// once has a side call do when it reads its clock for the next time, which it does between taking
// the list of trusted peers and verifying a peer by it.
func (s *Security) once(do func()) {
	var called atomic.Bool
	now := func() time.Time {
		if called.CompareAndSwap(false, true) {
			do()
		}
		return time.Now()
	}
	s.now.Store(&now)
}

// TestUpdateWhileConnecting removes a host from the list of an I/O unit while it connects. However
// far its handshake is, its connection must end.
func TestUpdateWhileConnecting(t *testing.T) {
	h, u, other := newKey(t), newKey(t), newKey(t)
	for _, tt := range []struct {
		name string
		ends int // number of connections that Update ends
		// at calls change when the handshake is that far, and returns the host's error.
		at func(t *testing.T, ln *Listener, host, unit *Security, change func()) error
	}{
		{"its certificate is being verified", 0,
			func(t *testing.T, ln *Listener, host, unit *Security, change func()) error {
				unit.once(change)
				return knock(t, ln, host)
			}},
		{"it has sent no hello", 1, func(t *testing.T, ln *Listener, host, unit *Security, change func()) error {
			c, err := dial(t, ln, host)
			if err != nil {
				return err
			}
			testenv.Eventually(t, func() bool { return unit.living() == 1 }, "the host is authenticated")
			if change(); t.Failed() {
				return nil
			}
			_, err = c.Hello(testContext(t), testHello())
			return err
		}},
		{"it waits for a welcome", 1, func(t *testing.T, ln *Listener, host, _ *Security, change func()) error {
			called := make(chan error, 1)
			go func() { called <- call(t, ln, host) }()
			s, err := ln.Accept(testContext(t))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if change(); t.Failed() {
				return nil
			}
			waitDone(t, s.Conn)
			return <-called
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			host := secured(t, h, u.Fingerprint().String())
			unit, next := secured(t, u, h.Fingerprint().String()), secured(t, u, other.Fingerprint().String())
			ln, _ := listen(t, ServerConfig{Security: unit})
			// The test refuses a host that has got through.
			var refused *RefusedError
			err := tt.at(t, ln, host, unit, func() { update(t, unit, next, tt.ends) })
			if err == nil || errors.As(err, &refused) {
				t.Fatalf("the host got through: %v", err)
			}
			testenv.Eventually(t, func() bool { return unit.living() == 0 }, "no connection is left")
		})
	}
}

func TestUpdateRefuses(t *testing.T) {
	host, _ := friends(t)
	for _, pair := range [][2]*Security{{host, insecure(t)}, {insecure(t), host}} {
		before := pair[0].Fingerprint()
		if n, err := pair[0].Update(pair[1]); n != 0 || !errors.Is(err, ErrSecurityMode) || pair[0].Fingerprint() != before {
			t.Errorf("%d, %v", n, err)
		}
	}
	var trust Trust
	if err := trust.AddRevoked(testca.File(t, "# nobody\nmallory\n")); err == nil {
		t.Error("a line that is no fingerprint was taken")
	}
	if err := trust.AddRevoked("/nonexistent/revoked"); err == nil {
		t.Error("a file that is missing was taken")
	}
}

func TestEndedConnectionsAreForgotten(t *testing.T) {
	host, unit := friends(t)
	ln, rejected := listen(t, ServerConfig{Security: unit})
	c, s := establish(t, ln, host)
	if host.living() != 1 || unit.living() != 1 {
		t.Errorf("%d and %d connections", host.living(), unit.living())
	}
	c.Close()
	waitDone(t, s.Conn)
	// A connection that is given up during its handshake.
	if d, err := dial(t, ln, host); err == nil {
		d.Close()
	}
	rejected.next(t)
	if host.living() != 0 || unit.living() != 0 {
		t.Errorf("%d and %d connections are left", host.living(), unit.living())
	}
}

func TestBinding(t *testing.T) {
	host, unit := friends(t)
	ln, _ := listen(t, ServerConfig{Security: unit})
	seen := map[[BindingSize]byte]bool{{}: true}
	for range 3 {
		c, s := establish(t, ln, host)
		here, err := c.Binding()
		if err != nil {
			t.Fatal(err)
		}
		there, err := s.Binding()
		if err != nil {
			t.Fatal(err)
		}
		if here != there || seen[here] {
			t.Errorf("%x and %x, of another connection or not the same", here, there)
		}
		seen[here] = true
	}
}

func TestStanding(t *testing.T) {
	a := newAuthority(t)
	unit := a.member(t, "gw1", x509.ExtKeyUsageServerAuth)
	if st := unit.Standing(); !st.Authorities || st.Keys != 0 || time.Until(st.Expires) > time.Hour ||
		st.Expires.IsZero() || !st.Begins.Before(time.Now()) {
		t.Errorf("%+v", st)
	}
	own, peer, other := newKey(t), newKey(t), newKey(t).Fingerprint().String()
	if st := revoking(t, own, own.Fingerprint(), peer.Fingerprint().String(), other).Standing(); !st.OwnRevoked ||
		st.Revoked != 1 || st.Keys != 2 || st.Authorities || !st.Expires.IsZero() {
		t.Errorf("%+v", st)
	}
	if st := insecure(t).Standing(); !st.Insecure || st.OwnRevoked {
		t.Errorf("%+v", st)
	}
}

// TestVerdictOfYesterday enlists a verdict that was made with a list that has just been replaced.
// The verdict must not count.
func TestVerdictOfYesterday(t *testing.T) {
	host, unit := friends(t)
	ln, _ := listen(t, ServerConfig{Security: unit})
	_, s := establish(t, ln, host)
	old := unit.changes
	v := &identity.Verdict{ID: Identity{Name: "yesterday"}, Chain: s.verdict.Load().Chain}
	if !unit.enlist(&s.authentication, v, old) || s.Peer().Name != "yesterday" {
		t.Errorf("a verdict by the list in force does not count: the peer is %v", s.Peer())
	}
	update(t, unit, secured(t, newKey(t), "today="+host.Fingerprint().String()), 0)
	if unit.enlist(&s.authentication, v, old) || s.Peer().Name != "today" {
		t.Errorf("a verdict by the last list counts: the peer is %v", s.Peer())
	}
}

// halfway is a client's connection that sends its ClientHello and its certificate, and drops
// everything after that.
type halfway struct {
	net.Conn
	records int
}

func (c *halfway) Write(b []byte) (int, error) {
	const header, passing = 5, 3 // ClientHello, ChangeCipherSpec, Certificate
	for rest := b; len(rest) >= header; c.records++ {
		n := header + int(binary.BigEndian.Uint16(rest[3:]))
		if c.records < passing {
			if _, err := c.Conn.Write(rest[:n]); err != nil {
				return 0, err
			}
		}
		rest = rest[n:]
	}
	return len(b), nil
}

// TestUpdateHalfway revokes the key of a host that stops in its TLS handshake after it has sent
// its certificate. Neither the Update nor another host may wait for this host, although its
// handshake could take an hour.
func TestUpdateHalfway(t *testing.T) {
	h, u, other := newKey(t), newKey(t), newKey(t)
	unit := secured(t, u, h.Fingerprint().String(), other.Fingerprint().String())
	// Only one handshake at a time for this address: the next one takes the place of the first.
	ln, rejected := listen(t, ServerConfig{Security: unit, HandshakeTimeout: time.Hour, MaxHandshakes: perMachine})
	certificate := secured(t, h, u.Fingerprint().String()).made.Certificate
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c := tls.Client(&halfway{Conn: nc}, &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{alpnSecure}, InsecureSkipVerify: true,
		Certificates: []tls.Certificate{certificate},
	})
	if err := c.HandshakeContext(testContext(t)); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, func() bool { return unit.living() == 1 }, "the host's certificate is known")
	updated := make(chan struct{})
	go func() {
		defer close(updated)
		update(t, unit, secured(t, u, other.Fingerprint().String()), 1)
	}()
	testenv.Eventually(t, func() bool { return unit.living() == 0 }, "the host's connection is judged")
	establish(t, ln, secured(t, other, u.Fingerprint().String()))
	select {
	case <-updated:
	case <-testContext(t).Done():
		t.Fatal("the update waits for the host")
	}
	var revoked *RevokedError
	if err := rejected.next(t); !errors.As(err, &revoked) {
		t.Errorf("the host's connection ended with %v", err)
	}
}

// TestStillTrusted ends the trust in a peer whose connection has ended: by a list without its key,
// by a revocation, and by the expiry of its certificate.
func TestStillTrusted(t *testing.T) {
	h, u := newKey(t), newKey(t)
	a := newAuthority(t)
	for name, tt := range map[string]struct {
		listed bool // the key is listed; otherwise it has a certificate
		next   func() *Security
		later  time.Duration
		reason string // "": it is still trusted
	}{
		"nothing changes": {listed: true},
		"another list":    {listed: true, next: func() *Security { return secured(t, h, u.Fingerprint().String()) }},
		"not listed any more": {listed: true, reason: "untrusted",
			next: func() *Security { return secured(t, h, h.Fingerprint().String()) }},
		"revoked": {listed: true, reason: "revoked",
			next: func() *Security { return revoking(t, h, u.Fingerprint(), u.Fingerprint().String()) }},
		"a listed key, later":    {listed: true, later: 24 * time.Hour},
		"a certificate":          {},
		"an expired certificate": {later: 2 * time.Hour, reason: "expired"},
	} {
		t.Run(name, func(t *testing.T) {
			host, unit := secured(t, h, u.Fingerprint().String()), secured(t, u, h.Fingerprint().String())
			if !tt.listed {
				host, unit = a.member(t, "node17", x509.ExtKeyUsageClientAuth), a.member(t, "gw1", x509.ExtKeyUsageServerAuth)
			}
			ln, _ := listen(t, ServerConfig{Security: unit})
			c, _ := establish(t, ln, host)
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			if tt.next != nil {
				update(t, host, tt.next(), 0)
			}
			if tt.later > 0 {
				later := func() time.Time { return time.Now().Add(tt.later) }
				host.now.Store(&later)
			}
			until, err := c.StillTrusted()
			var revoked *RevokedError
			if (err != nil) != (tt.reason != "") || err != nil && (!errors.As(err, &revoked) || Reason(err) != tt.reason) {
				t.Errorf("%v", err)
			}
			if expires := !until.IsZero(); expires != (!tt.listed && err == nil) {
				t.Errorf("until %v", until)
			}
		})
	}
	host, unit := insecure(t), insecure(t)
	ln, _ := listen(t, ServerConfig{Security: unit})
	c, _ := establish(t, ln, host)
	if until, err := c.StillTrusted(); err != nil || !until.IsZero() {
		t.Errorf("without keys: until %v, %v", until, err)
	}
}

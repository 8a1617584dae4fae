package session

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testca"
	"github.com/splitnic/splitnic/internal/testenv"
)

// clock is the clock of both sides of a session, which a test advances.
type clock struct{ ahead atomic.Int64 }

func (c *clock) of(sides ...*Security) {
	now := func() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }
	for _, s := range sides {
		s.now.Store(&now)
	}
}

func (c *clock) add(d time.Duration) { c.ahead.Add(int64(d)) }

// pair is a session between two sides with certificates of one authority, valid for an hour.
type pair struct {
	*authority
	t                *testing.T
	clock            clock
	hostKey, unitKey *Key
	host, unit       *Security
	ln               *Listener
	rejected         rejections
	c                *Client
	s                *Server
}

func newPair(t *testing.T) *pair {
	t.Helper()
	a := &authority{testca.NewFor(t, time.Now().Add(-time.Hour), time.Now().Add(100*time.Hour))}
	p := &pair{t: t, authority: a, hostKey: newKey(t), unitKey: newKey(t)}
	p.host = p.until(p.hostKey, "node17", x509.ExtKeyUsageClientAuth, time.Hour)
	p.unit = p.until(p.unitKey, "gw1", x509.ExtKeyUsageServerAuth, time.Hour)
	p.clock.of(p.host, p.unit)
	p.ln, p.rejected = listen(t, ServerConfig{Security: p.unit})
	p.c, p.s = establish(t, p.ln, p.host)
	return p
}

// until returns the Security of key, with a certificate that is valid for this time from now on.
func (p *pair) until(key *Key, name string, usage x509.ExtKeyUsage, lasts time.Duration) *Security {
	p.t.Helper()
	now := time.Now().Add(time.Duration(p.clock.ahead.Load()))
	return p.trusting(p.t, key, p.IssueWithin(p.t, key, name, usage, now.Add(-time.Minute), now.Add(lasts)))
}

// lives advances the clock and checks that the session goes on, or that it ends, as wanted.
func (p *pair) lives(d time.Duration, want bool) {
	p.t.Helper()
	p.clock.add(d)
	p.s.expire(p.unit.clock())
	p.c.expire(p.host.clock())
	if lives := p.s.Err() == nil && p.c.Err() == nil; lives != want {
		p.t.Errorf("%v later: %v, %v", time.Duration(p.clock.ahead.Load()), p.s.Err(), p.c.Err())
	}
}

// TestRenew renews a session several times. The session must go on while certificates, and even
// keys, are replaced, and end when the last certificate expires.
func TestRenew(t *testing.T) {
	for _, keys := range []string{"the same keys", "other keys"} {
		t.Run(keys, func(t *testing.T) {
			p := newPair(t)
			for range 5 {
				p.lives(45*time.Minute, true)
				if keys == "other keys" {
					p.hostKey, p.unitKey = newKey(t), newKey(t)
				}
				before, _ := p.c.Term()
				update(t, p.host, p.until(p.hostKey, "node17", x509.ExtKeyUsageClientAuth, time.Hour), 0)
				update(t, p.unit, p.until(p.unitKey, "gw1", x509.ExtKeyUsageServerAuth, time.Hour), 0)
				if after, ok := p.c.Term(); !ok || after != before {
					t.Errorf("the session's term is %v before it is renewed, it was %v", after, before)
				}
				if err := p.c.Renew(testContext(t)); err != nil {
					t.Fatal(err)
				}
				for _, c := range []*Conn{p.c.Conn, p.s.Conn} {
					if term, ok := c.Term(); !ok || term.Expires.Sub(before.Expires) < 40*time.Minute {
						t.Errorf("the session's term is %v, it was %v", term, before)
					}
				}
				if p.s.Peer().Fingerprint != p.hostKey.Fingerprint() || p.c.Peer().Fingerprint != p.unitKey.Fingerprint() {
					t.Errorf("the peers are %v and %v", p.s.Peer(), p.c.Peer())
				}
				// Other connections would have expired at the next change.
				testenv.Eventually(t, func() bool { return p.host.living() == 1 && p.unit.living() == 1 },
					"only the session's connections are left")
			}
			p.lives(55*time.Minute, true)
			p.lives(10*time.Minute, false)
		})
	}
}

// TestRenewOneSide renews a session with a new certificate of only one side. The session must end
// when the certificate of the other side expires.
func TestRenewOneSide(t *testing.T) {
	p := newPair(t)
	update(t, p.host, p.until(p.hostKey, "node17", x509.ExtKeyUsageClientAuth, 9*time.Hour), 0)
	if err := p.c.Renew(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if term, _ := p.c.Term(); time.Until(term.Expires) > time.Hour {
		t.Errorf("the session's term is %v", term)
	}
	p.clock.add(2 * time.Hour)
	p.s.expire(p.unit.clock())
	if p.s.Err() != nil {
		t.Errorf("the I/O unit ended it: %v", p.s.Err())
	}
	p.c.expire(p.host.clock())
	endedAs(t, p.c.Conn, p.s.Conn, "expired")
}

// TestRevokedAfterRenewal revokes the key that a session began with, which must not matter after
// the renewal, and then the key of the renewal, which must end the session.
func TestRevokedAfterRenewal(t *testing.T) {
	p := newPair(t)
	first := p.hostKey
	p.hostKey = newKey(t)
	update(t, p.host, p.until(p.hostKey, "node17", x509.ExtKeyUsageClientAuth, time.Hour), 0)
	if err := p.c.Renew(testContext(t)); err != nil {
		t.Fatal(err)
	}
	revoking := func(f Fingerprint) *Security {
		s := p.until(p.unitKey, "gw1", x509.ExtKeyUsageServerAuth, time.Hour)
		if err := s.made.Trust.AddRevoked(testca.File(t, f.String())); err != nil {
			t.Fatal(err)
		}
		return s
	}
	testenv.Eventually(t, func() bool { return p.unit.living() == 1 }, "only the session's connection is left")
	update(t, p.unit, revoking(first.Fingerprint()), 0)
	update(t, p.unit, revoking(p.hostKey.Fingerprint()), 1)
	endedAs(t, p.s.Conn, p.c.Conn, "revoked")
}

// TestRenewRefuses tries to renew a session without the right proof, or as another host. This must
// be refused and not extend the session.
func TestRenewRefuses(t *testing.T) {
	p := newPair(t)
	id := p.c.welcome.Session
	p.lives(50*time.Minute, true)
	longer := func(name string) *Security {
		return p.until(newKey(t), name, x509.ExtKeyUsageClientAuth, 3*time.Hour)
	}
	for _, tt := range []struct {
		name    string
		host    *Security
		session string
		proof   func(fresh *authentication) proof
	}{
		{"no such session", longer("node17"), "another",
			func(fresh *authentication) proof { h, _, _ := proofs(&p.c.authentication, fresh); return h }},
		{"no word", longer("node17"), "an other", func(*authentication) proof { return proof{} }},
		{"no proof", longer("node17"), id, func(*authentication) proof { return proof{} }},
		{"the I/O unit's proof", longer("node17"), id,
			func(fresh *authentication) proof { _, u, _ := proofs(&p.c.authentication, fresh); return u }},
		{"proof of one connection", longer("node17"), id,
			func(fresh *authentication) proof { h, _, _ := proofs(fresh, fresh); return h }},
		{"proof the other way round", longer("node17"), id,
			func(fresh *authentication) proof { h, _, _ := proofs(fresh, &p.c.authentication); return h }},
		{"proof for another connection", longer("node17"), id, func(*authentication) proof {
			other, err := dial(t, p.ln, p.host)
			if err != nil {
				t.Fatal(err)
			}
			h, _, _ := proofs(&p.c.authentication, &other.authentication)
			return h
		}},
		{"another host", longer("node18"), id,
			func(fresh *authentication) proof { h, _, _ := proofs(&p.c.authentication, fresh); return h }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p.clock.of(tt.host)
			fresh, err := dial(t, p.ln, tt.host)
			if err != nil {
				t.Fatal(err)
			}
			err = fresh.step(testContext(t), "renew the session with", func() error {
				if err := fresh.send(renewMessage{typeRenew, tt.session, tt.proof(&fresh.authentication)}); err != nil {
					return err
				}
				_, err := fresh.receive(typeRenewed)
				return err
			})
			var refused *RefusedError
			if !errors.As(err, &refused) || refused.Code != CodeBadHello || refused.Retry {
				t.Fatalf("host: %v", err)
			}
			testenv.Explained(t, err.Error())
			if err := p.rejected.next(t); err == nil {
				t.Error("no error")
			} else {
				testenv.Explained(t, Reason(err))
			}
			if term, _ := p.s.Term(); term.Expires.After(time.Now().Add(2 * time.Hour)) {
				t.Errorf("the session's term is %v", term)
			}
		})
	}
	p.lives(20*time.Minute, false)
}

// TestRenewByAnotherKey renews a session with a connection on which the host has shown another key.
// It must be a key with the same name; keys without names are of different hosts.
func TestRenewByAnotherKey(t *testing.T) {
	first, second, u := newKey(t), newKey(t), newKey(t)
	for _, tt := range []struct {
		name  string
		names [2]string
		want  error
	}{
		{"no names", [2]string{"", ""}, ErrUnexpected},
		{"other names", [2]string{"alpha=", "beta="}, ErrUnexpected},
		{"a name, and none", [2]string{"alpha=", ""}, ErrUnexpected},
		{"one name", [2]string{"alpha=", "alpha="}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			unit := secured(t, u, tt.names[0]+first.Fingerprint().String(), tt.names[1]+second.Fingerprint().String())
			ln, _ := listen(t, ServerConfig{Security: unit})
			_, session := establish(t, ln, secured(t, first, u.Fingerprint().String()))
			_, fresh := establish(t, ln, secured(t, second, u.Fingerprint().String()))
			if err := unit.renew(&session.authentication, &fresh.authentication); !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
			want := first.Fingerprint()
			if tt.want == nil {
				want = second.Fingerprint()
			}
			if got := session.Peer().Fingerprint; got != want {
				t.Errorf("the session is that of %v, not %v", got, want)
			}
		})
	}
}

// TestRevokedWhileRenewing revokes the key that a host has shown while the I/O unit verifies it for
// the renewal, by an Update that has not judged the session yet. The session must go on as that of
// the key with which it began.
func TestRevokedWhileRenewing(t *testing.T) {
	first, second, u := newKey(t), newKey(t), newKey(t)
	listed := []string{"alpha=" + first.Fingerprint().String(), "alpha=" + second.Fingerprint().String()}
	unit, next := secured(t, u, listed...), revoking(t, u, second.Fingerprint(), listed...)
	ln, _ := listen(t, ServerConfig{Security: unit})
	_, session := establish(t, ln, secured(t, first, u.Fingerprint().String()))
	_, fresh := establish(t, ln, secured(t, second, u.Fingerprint().String()))
	unit.once(func() {
		unit.mu.Lock()
		defer unit.mu.Unlock()
		unit.made = next.made
		unit.changes++
	})
	var untrusted *UntrustedError
	if err := unit.renew(&session.authentication, &fresh.authentication); !errors.As(err, &untrusted) {
		t.Errorf("%v", err)
	}
	if session.Peer().Fingerprint != first.Fingerprint() || session.Err() != nil {
		t.Errorf("the session is that of %v, %v", session.Peer(), session.Err())
	}
}

// TestRenewAtAnother sends the renewal to another server than the I/O unit of the session. It has
// a certificate with the same name, but must be refused.
func TestRenewAtAnother(t *testing.T) {
	p := newPair(t)
	other := p.until(newKey(t), "gw1", x509.ExtKeyUsageServerAuth, 9*time.Hour)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	served := make(chan error, 1)
	go func() {
		served <- func() error {
			nc, err := ln.Accept()
			if err != nil {
				return err
			}
			c := newConn(nc, other, roleHost, time.Now().Add(time.Minute), time.Minute)
			c.useTLS(tls.Server(nc, c.tlsConfig()))
			defer c.Close()
			if err := c.authenticate(testContext(t)); err != nil {
				return err
			}
			if _, err := c.receive(typeRenew); err != nil {
				return err
			}
			return c.send(renewedMessage{typeRenewed, proof{1}})
		}()
	}()
	p.c.cfg.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, ln.Addr().String())
	}
	err = p.c.Renew(testContext(t))
	var field *FieldError
	if !errors.As(err, &field) || field.Field != "proof" {
		t.Errorf("%v", err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	if term, _ := p.c.Term(); time.Until(term.Expires) > time.Hour || p.c.Err() != nil {
		t.Errorf("the session's term is %v, %v", term, p.c.Err())
	}
}

// TestRenewUnknown tries to renew a session with an I/O unit without that feature.
func TestRenewUnknown(t *testing.T) {
	p := newPair(t)
	p.c.welcome.Features = nil
	if err := p.c.Renew(testContext(t)); !errors.Is(err, ErrNoRenewal) {
		t.Error(err)
	}
}

// TestChangedAtUpdate expects that Update closes the channel of Changed, and that nothing else
// does.
func TestChangedAtUpdate(t *testing.T) {
	host, unit := friends(t)
	changed, other := host.Changed(), unit.Changed()
	update(t, host, secured(t, newKey(t), unit.Fingerprint().String()), 0)
	select {
	case <-changed:
	default:
		t.Error("an update is no change")
	}
	for _, c := range []<-chan struct{}{host.Changed(), other} {
		select {
		case <-c:
			t.Error("a change without an update")
		default:
		}
	}
}

// TestRenewInvalid has a host name its session by what is not a word, which would be in logs.
func TestRenewInvalid(t *testing.T) {
	for _, name := range []string{"", "a b", strings.Repeat("x", 65)} {
		_, err := decodeRenew([]byte(`{"type":"renew","session":"` + name + `"}`))
		if field, ok := errors.AsType[*FieldError](err); !ok || field.Field != "session" {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// FuzzRenew decodes the messages of a renewal.
func FuzzRenew(f *testing.F) {
	f.Add([]byte(changed(f, renewMessage{typeRenew, "s-1", proof{1}}, nil)))
	f.Add([]byte(changed(f, renewedMessage{typeRenewed, proof{2}}, nil)))
	f.Add([]byte(`{"type":"renew","session":"","proof":"00"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := decodeRenew(b); err == nil {
			m.Type = typeRenew
			again(t, m, m, decodeRenew)
		}
		if m, err := decode[renewedMessage](b); err == nil {
			m.Type = typeRenewed
			again(t, m, m, decode[renewedMessage])
		}
	})
}

package endpoints

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// wishes makes a host want encryption or not.
func wishes(w seal.Wish) func(*host.Config) { return func(c *host.Config) { c.Encrypt = w } }

// TestEncryption has host and I/O unit want encryption, allow it, or not, the I/O unit also by its
// policy. A session is encrypted if one side requires it, and there is none if the other one does not
// have it.
func TestEncryption(t *testing.T) {
	for _, host := range seal.Wishes() {
		for _, unit := range seal.Wishes() {
			for _, byPolicy := range []bool{false, true} {
				t.Run(fmt.Sprintf("host %s, unit %s, by policy %t", host, unit, byPolicy), func(t *testing.T) {
					w := newWorld(t)
					u, _ := w.unit(func(c *iounit.Config) {
						c.Encrypt = unit
						if byPolicy {
							c.Encrypt = map[seal.Wish]seal.Wish{seal.Required: seal.No, seal.No: seal.Required}[unit]
							c.Policy = rules(t, fmt.Sprintf("default: {encrypt: %s}", unit))
						}
					})
					d, h, r := w.host("alpha", wishes(host))
					if host == seal.No && unit == seal.Required || host == seal.Required && unit == seal.No {
						refusedFor(t, r, session.CodeEncryption)
						return
					}
					d.up(t)
					w.both(d)
					want := seal.Cipher("")
					if host == seal.Required || unit == seal.Required {
						want = seal.Ciphers()[0]
					}
					s := u.Status()
					if got := h.Status().Traffic.Cipher; got != want || s.Hosts[0].Traffic.Cipher != want {
						t.Errorf("the host has %q, the I/O unit %q, want %q", got, s.Hosts[0].Traffic.Cipher, want)
					}
					if c := h.Status().Traffic.Channels[0]; (c.TxSealed > 0) != (want != "") || (c.RxOpened > 0) != (want != "") {
						t.Errorf("%d transfers encrypted, %d opened", c.TxSealed, c.RxOpened)
					}
				})
			}
		}
	}
}

// refusedFor expects a host to end with a refusal.
func refusedFor(t *testing.T, r *running, code session.Code) {
	t.Helper()
	select {
	case err := <-r.done:
		r.once.Do(func() {})
		var refused *session.RefusedError
		if !errors.As(err, &refused) || refused.Code != code {
			t.Errorf("the host ended with: %v", err)
		}
		testenv.Explained(t, err.Error())
	case <-time.After(testenv.Patience):
		t.Fatal("the host goes on")
	}
}

// TestCiphers has the sides choose a cipher, in all modes.
func TestCiphers(t *testing.T) {
	for _, mode := range protocol.Modes() {
		for _, c := range seal.Ciphers() {
			t.Run(fmt.Sprintf("%s, %s", mode, c), func(t *testing.T) {
				w := newWorld(t)
				w.unit(func(cfg *iounit.Config) { cfg.Ciphers = []seal.Cipher{c} })
				d, h, _ := w.host("alpha", wishes(seal.Required), func(cfg *host.Config) { cfg.Modes = []protocol.Mode{mode} })
				d.up(t)
				w.both(d)
				if got := h.Status().Traffic.Cipher; got != c {
					t.Errorf("cipher %q", got)
				}
			})
		}
	}
	t.Run("none in common", func(t *testing.T) {
		w := newWorld(t)
		w.unit(func(c *iounit.Config) { c.Ciphers = []seal.Cipher{seal.AES256GCM} })
		_, _, r := w.host("alpha", wishes(seal.Required), func(c *host.Config) { c.Ciphers = []seal.Cipher{seal.AES128GCM} })
		refusedFor(t, r, session.CodeEncryption)
	})
}

// TestEncryptionWithheld has a host that requires encryption at an I/O unit that ignores that, as one
// of an old version does. There must be no session, and the I/O unit is told why.
func TestEncryptionWithheld(t *testing.T) {
	w := newWorld(t)
	ln, err := session.Listen(testenv.Loopback()+":0", session.ServerConfig{Security: w.security(w.unitKey, w.hostKey)})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	w.addr = ln.Addr().String()
	d, _, _ := w.host("alpha", wishes(seal.Required))
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	s, err := ln.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	hello := s.Hello()
	if len(hello.Ciphers) == 0 || !hello.Encrypt {
		t.Fatalf("the hello does not require encryption: %+v", hello)
	}
	_, err = s.Welcome(ctx, session.Welcome{
		Name: "old", Software: "test", Mode: hello.Modes[0], Queues: 1, Pools: 1, MAC: protocol.MAC{2, 0, 0, 0, 0, 1},
		MTU: 1500, ControlReceives: protocol.ControlReceives(hello.Modes[0], 1, hello.Pools),
		Channels: []session.Channel{{QPN: 2, MTU: 1024}, {QPN: 3, MTU: 1024}},
	})
	var bye *session.ByeError
	if !errors.As(err, &bye) || bye.Code != session.CodeEncryption {
		t.Errorf("the host goes on: %v", err)
	}
	if d.losses() != 0 || d.raised != 0 {
		t.Error("the netdevice had a carrier")
	}
}

// TestPolicyRequiresEncryption changes the policy under a session that is not encrypted. It has to
// end, and the next one is encrypted.
func TestPolicyRequiresEncryption(t *testing.T) {
	w := newWorld(t)
	u, _ := w.unit()
	d, h, _ := w.host("alpha")
	d.up(t)
	w.both(d)
	if got := h.Status().Traffic.Cipher; got != "" {
		t.Fatalf("encrypted by %s, and nobody requires it", got)
	}
	if n := u.SetPolicy(rules(t, "default: {encrypt: required}")); n != 1 {
		t.Errorf("%d sessions end", n)
	}
	testenv.Eventually(t, func() bool {
		s := h.Status()
		return s.Traffic != nil && s.Traffic.Cipher != ""
	}, "an encrypted session")
	d.up(t)
	w.both(d)
	if n := u.SetPolicy(rules(t, "default: {encrypt: required, max-queues: 3}")); n != 0 {
		t.Errorf("%d encrypted sessions end by a policy that requires encryption", n)
	}
}

// TestDirectEncryption connects two hosts directly, of which one requires encryption. Their connection
// has to be encrypted as well. A host without ciphers has none with such a host.
func TestDirectEncryption(t *testing.T) {
	for _, beta := range []seal.Wish{seal.Required, seal.Allowed, seal.No} {
		t.Run(string(beta), func(t *testing.T) {
			w := newWorld(t)
			u, _ := w.unit(directly)
			a, ha, _ := w.host("alpha", makesDirect, wishes(seal.Required))
			b, hb, _ := w.host("beta", makesDirect, wishes(beta))
			a.up(t)
			b.up(t)
			w.newLANSwitch(a.mac, b.mac)
			there, back := newStream(t, a, b), newStream(t, b, a)
			if beta == seal.No {
				testenv.Eventually(t, func() bool {
					d := u.Status().Direct
					return len(d.Pairs) == 1 && d.Pairs[0].Why == "encryption"
				}, "a reason for which there is no direct connection")
				there.moves(t, 100)
				back.moves(t, 100)
				if established(ha) {
					t.Error("there is a direct connection")
				}
				return
			}
			testenv.Eventually(t, func() bool { return established(ha) && established(hb) }, "a direct connection")
			there.moves(t, 1000)
			back.moves(t, 1000)
			for _, h := range []*host.Host{ha, hb} {
				s := h.Status().Direct.Connections[0].Traffic
				if s.Cipher != seal.Ciphers()[0] || s.Channels[0].TxSealed == 0 || s.Channels[0].RxOpened == 0 {
					t.Errorf("cipher %q, %d transfers encrypted, %d opened", s.Cipher, s.Channels[0].TxSealed, s.Channels[0].RxOpened)
				}
			}
		})
	}
}

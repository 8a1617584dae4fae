package endpoints

import (
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/vnet"
)

// key returns a new key.
func (w *world) key() *session.Key {
	w.t.Helper()
	k, err := session.GenerateKey()
	if err != nil {
		w.t.Fatal(err)
	}
	return k
}

// trusting returns the Security of an endpoint with key own that trusts entries.
func (w *world) trusting(own *session.Key, entries ...string) *session.Security {
	w.t.Helper()
	trust := &session.Trust{}
	for _, e := range entries {
		if err := trust.Add(e); err != nil {
			w.t.Fatal(err)
		}
	}
	s, err := session.NewSecurity(own, "", trust)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// trusts makes the I/O unit trust these keys only, and returns how many sessions end.
func (w *world) trusts(entries ...string) int {
	w.t.Helper()
	n, err := w.trust.Update(w.trusting(w.unitKey, entries...))
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// TestRevokedHost removes the key of one of two hosts from the I/O unit's trusted keys.
func TestRevokedHost(t *testing.T) {
	w := newWorld(t)
	u, _ := w.unit()
	other := w.key()
	alpha, beta := "alpha="+w.hostKey.Fingerprint().String(), "beta="+other.Fingerprint().String()
	w.trusts(alpha, beta)
	a, _, _ := w.host("alpha")
	b, bh, _ := w.host("beta", func(c *host.Config) { c.Security = w.security(other, w.unitKey) })
	a.up(t)
	b.up(t)
	mac := a.mac
	w.both(a)
	w.both(b)
	if s := u.Status(); len(s.Hosts) != 2 || !s.Hosts[0].Traffic.Bound || !s.Hosts[1].Traffic.Bound ||
		!bh.Status().Traffic.Bound {
		t.Error("a session is not bound to its connection")
	}
	if n := w.trusts(beta); n != 1 {
		t.Errorf("%d sessions end", n)
	}
	a.down(t)
	testenv.Eventually(t, func() bool { return u.Status().Refusals["untrusted"] > 2 }, "attempts that are refused")
	if s := u.Status(); s.Ended["untrusted"] != 1 || len(s.Hosts) != 1 || len(s.Violations) != 0 {
		t.Errorf("%+v", s)
	}
	w.both(b)
	w.trusts(alpha, beta)
	a.up(t)
	w.both(a)
	w.both(b)
	if a.mac != mac {
		t.Errorf("the MAC address changed from %s to %s", mac, a.mac)
	}
	if n := bh.Status().Sessions; n != 1 {
		t.Errorf("the other host has had %d sessions", n)
	}
}

// TestRevokedUnit removes the I/O unit's key from the host's trusted keys.
func TestRevokedUnit(t *testing.T) {
	w := newWorld(t)
	u, _ := w.unit()
	trust := w.security(w.hostKey, w.unitKey)
	d, h, _ := w.host("alpha", func(c *host.Config) { c.Security = trust })
	d.up(t)
	if n, err := trust.Update(w.security(w.hostKey, w.key())); n != 1 || err != nil {
		t.Errorf("%d sessions end, %v", n, err)
	}
	d.down(t)
	testenv.Eventually(t, func() bool { return h.Status().Ended["untrusted"] == 1 && u.Status().Ended["bye"] == 1 },
		"an end that is counted")
	if _, err := trust.Update(w.security(w.hostKey, w.unitKey)); err != nil {
		t.Fatal(err)
	}
	d.up(t)
	w.both(d)
	testenv.Eventually(t, func() bool {
		last := h.Status().Failovers.Last
		return last != nil && last.Reason == uplink.ReasonTrust
	}, "the reason is not the trust: %+v", later(func() any { return h.Status().Failovers.Last }))
}

// TestPersevere expects a host whose key is not trusted to retry until its key is trusted.
func TestPersevere(t *testing.T) {
	w := newWorld(t)
	w.unit()
	stranger := w.key()
	change := func(c *host.Config) {
		c.Security, c.Persevere = w.security(stranger, w.unitKey), true
	}
	d, h, _ := w.host("alpha", change)
	testenv.Eventually(t, func() bool { return h.Status().Attempts > 2 }, "several attempts")
	w.trusts(stranger.Fingerprint().String())
	d.up(t)
}

// TestHostChangesKey gives a host another key during its session.
func TestHostChangesKey(t *testing.T) {
	w := newWorld(t)
	u, _ := w.unit()
	next := w.key()
	before, after := "alpha="+w.hostKey.Fingerprint().String(), "alpha="+next.Fingerprint().String()
	trust := w.security(w.hostKey, w.unitKey)
	w.trusts(before)
	d, h, _ := w.host("alpha", func(c *host.Config) { c.Security = trust })
	d.up(t)
	mac := d.mac
	// The administrator takes these steps, in this order.
	if n := w.trusts(before, after); n != 0 {
		t.Errorf("%d sessions end", n)
	}
	if _, err := trust.Update(w.security(next, w.unitKey)); err != nil {
		t.Fatal(err)
	}
	w.both(d)
	if s := h.Status(); s.Sessions != 1 {
		t.Errorf("the host has had %d sessions", s.Sessions)
	}
	if n := w.trusts(after); n != 1 {
		t.Errorf("%d sessions end", n)
	}
	testenv.Eventually(t, func() bool {
		s := u.Status()
		return len(s.Hosts) == 1 && s.Hosts[0].Fingerprint == next.Fingerprint().String()
	}, "a session with the new key")
	d.up(t)
	w.both(d)
	if d.mac != mac {
		t.Errorf("the MAC address changed from %s to %s", mac, d.mac)
	}
}

// TestPolicyChanges sets other policies during a session.
func TestPolicyChanges(t *testing.T) {
	w := newWorld(t)
	u, _ := w.unit()
	d, h, _ := w.host("alpha")
	d.up(t)
	established := func() { // the host is ready before the I/O unit
		t.Helper()
		testenv.Eventually(t, func() bool { return len(u.Status().Hosts) == 1 }, "a session")
	}
	established()
	set := func(text string, want int) {
		t.Helper()
		if n := u.SetPolicy(rules(t, text)); n != want {
			t.Errorf("%d sessions end by %q, not %d", n, text, want)
		}
	}
	set("default: {vlans: [5, 7]}", 0)
	tagged := from(t, d.mac, frame(100, 2))
	copy(tagged[vnet.HdrLen+12:], []byte{0x81, 0, 0, 9})
	if err := d.wire.Send(t.Context(), tagged); err != nil {
		t.Fatal(err)
	}
	w.both(d)
	if s := u.Status(); len(s.Hosts) != 1 || s.Hosts[0].Statistics.TxVLAN != 1 {
		t.Errorf("%+v", s.Hosts)
	}
	if n := h.Status().Sessions; n != 1 {
		t.Errorf("the host has had %d sessions", n)
	}
	// A setting that cannot change during a session ends it, and applies to the next one.
	set("default: {macs: [\"02:55:*\", \"3c:*\", \"dc:*\", \"bc:*\"]}", 1) // also the sources of frames
	d.await(t, "an address of the policy's", func() bool { return len(d.mac) == 17 && d.mac[:6] == "02:55:" })
	d.up(t)
	w.both(d)
	established()
	if s := u.Status(); s.Ended["policy"] != 1 || len(s.Violations) != 0 {
		t.Errorf("%+v", s)
	}
	set("default: {modes: send}", 1)
	testenv.Eventually(t, func() bool { return u.Status().Refusals["mode"] > 0 }, "a host that is refused")
	d.down(t)
	// The host may be in the middle of a handshake, which it then repeats.
	u.SetPolicy(policy.Default())
	d.up(t)
	w.both(d)
}

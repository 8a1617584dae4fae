package endpoints

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"path/filepath"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testca"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// authority issues certificates to both endpoints.
type authority struct {
	*testca.Authority
	t *testing.T
}

// member returns the Security of an endpoint with a new key and a certificate that expires after
// lasts.
func (a *authority) member(name string, usage x509.ExtKeyUsage, lasts time.Duration) *session.Security {
	a.t.Helper()
	path := filepath.Join(filepath.Dir(a.File), name+".pem")
	var seed [session.SeedSize]byte
	rand.Read(seed[:])
	private := ed25519.NewKeyFromSeed(seed[:])
	a.Issue(a.t, testca.Member(name, usage, lasts), private.Public(), path)
	trust := &session.Trust{}
	if err := trust.AddCA(a.File); err != nil {
		a.t.Fatal(err)
	}
	s, err := session.NewSecurity(session.KeyFromSeed(seed), path, trust)
	if err != nil {
		a.t.Fatal(err)
	}
	return s
}

// TestCertificatesComeAndGo gives both endpoints new keys and certificates that last for a few
// seconds, again and again, while frames move. There has to be one session all the time.
func TestCertificatesComeAndGo(t *testing.T) {
	const lasts = 8 * time.Second
	w := newWorld(t)
	u, _ := w.unit()
	a := &authority{testca.New(t), t}
	unitPart := func() *session.Security { return a.member("gw1", x509.ExtKeyUsageServerAuth, lasts) }
	hostPart := func() *session.Security { return a.member("node17", x509.ExtKeyUsageClientAuth, lasts) }
	renew := func(s, next *session.Security) {
		t.Helper()
		if n, err := s.Update(next); err != nil || n != 0 {
			t.Fatalf("%d sessions ended, %v", n, err)
		}
	}
	renew(w.trust, unitPart())
	security := hostPart()
	d, h, _ := w.host("alpha", func(c *host.Config) { c.Security = security })
	d.up(t)
	began := time.Now()
	last := func() time.Time {
		if security.Standing().Expires.Before(w.trust.Standing().Expires) {
			return security.Standing().Expires
		}
		return w.trust.Standing().Expires
	}
	// This takes longer than the lifetime of a certificate. Certificates are renewed when half of
	// their lifetime is left, in turns first by the host and first by the I/O unit.
	hostFirst := false
	for time.Since(began) < lasts+lasts/4 {
		if time.Until(last()) < lasts/2 {
			if hostFirst {
				renew(security, hostPart())
			}
			renew(w.trust, unitPart())
			if !hostFirst {
				renew(security, hostPart())
			}
			hostFirst = !hostFirst
		}
		w.both(d)
		if s := u.Status(); len(s.Hosts) != 1 || s.Sessions != 1 || h.Status().Sessions != 1 || h.Status().Attempts != 0 {
			t.Fatalf("after %v: %d sessions at the I/O unit, %d at the host: %s", time.Since(began), s.Sessions,
				h.Status().Sessions, h.Status().LastError)
		}
		time.Sleep(20 * time.Millisecond) // otherwise frames take all of the processor
	}
	// The last certificate is not renewed: the session has to end when it expires.
	renew(security, a.member("node17", x509.ExtKeyUsageClientAuth, 2*time.Second))
	testenv.Eventually(t, func() bool {
		return u.Status().Ended["expired"]+u.Status().Refusals["expired"] > 0 || h.Status().Ended["expired"] > 0
	}, "the end of the last certificates")
	d.down(t)
}

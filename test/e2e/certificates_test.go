package e2e

import (
	"crypto/ed25519"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testca"
)

// issuer is a certificate authority of the test.
type issuer struct {
	*testca.Authority
	t testing.TB
}

// member writes a certificate to file, for a key that `splitnic keygen` has made in keyFile. The
// certificate expires after lasts. member returns the time at which it expires.
func (a *issuer) member(keyFile, name string, usage x509.ExtKeyUsage, lasts time.Duration, file string) time.Time {
	a.t.Helper()
	text, err := os.ReadFile(keyFile)
	if err != nil {
		a.t.Fatal(err)
	}
	template := testca.Member(name, usage, lasts)
	a.Issue(a.t, template, ed25519.NewKeyFromSeed(seedOf(a.t, text)).Public(), file)
	return template.NotAfter
}

// TestRDMACertificates replaces the certificates of a session, that of the host together with its
// key. The session and an open connection have to continue. The session has to end when the last
// certificate expires without a replacement. TestCertificatesComeAndGo shows that sessions outlast
// certificates that are replaced.
func TestRDMACertificates(t *testing.T) {
	files := t.TempDir()
	bin, a := needFabric(t), &issuer{testca.New(t), t}
	path := func(name string) string { return filepath.Join(files, name) }
	unitKey, hostKey, unitCert, hostCert := path("unit.pem"), path("host.pem"), path("unit.crt"), path("host.crt")
	for _, key := range []string{unitKey, hostKey} {
		run(t, bin, "keygen", "--out", key)
	}
	a.member(unitKey, "gw1", x509.ExtKeyUsageServerAuth, time.Hour, unitCert)
	r := newFixture(t, "macvtap", "--key", unitKey, "--cert", unitCert, "--ca", a.File)
	a.member(hostKey, "node17", x509.ExtKeyUsageClientAuth, time.Hour, hostCert)
	h := r.host(t, "--key", hostKey, "--cert", hostCert, "--ca", a.File, "--iounit-name", "gw1")
	connection := hold(t, r, h)

	a.member(unitKey, "gw1", x509.ExtKeyUsageServerAuth, time.Hour, unitCert)
	r.unit.hangUp(1)
	print := changeKey(t, bin, hostKey)
	a.member(hostKey, "node17", x509.ExtKeyUsageClientAuth, time.Hour, hostCert)
	h.hangUp(1)
	r.unit.trust("the host's other key", func(s *trustStatus) bool {
		return len(s.Hosts) == 1 && s.Hosts[0].Fingerprint == print && s.Hosts[0].Traffic.Bound
	})
	connection.send(t)
	if s := h.hostStatus(); s.Sessions != 1 || s.State != "connected" {
		t.Errorf("%s, session %d: %s", s.State, s.Sessions, s.LastError)
	}
	connection.check(t)

	last := a.member(hostKey, "node17", x509.ExtKeyUsageClientAuth, 15*time.Second, hostCert)
	h.hangUp(2)
	<-time.After(time.Until(last)) // only the expiry ends the session
	h.waitCarrier(false)
	r.unit.trust("a session that has ended", func(s *trustStatus) bool {
		return s.Ended["expired"] == 1 && len(s.Hosts) == 0
	})

	// The host refuses an I/O unit whose certificate has another name.
	a.member(hostKey, "node17", x509.ExtKeyUsageClientAuth, time.Hour, hostCert)
	a.member(unitKey, "gw2", x509.ExtKeyUsageServerAuth, time.Hour, unitCert)
	r.unit.hangUp(2)
	h.hangUp(3)
	eventually(t, func() bool {
		return strings.Contains(h.hostStatus().LastError, "gw2, but --iounit-name expects gw1")
	}, "the name is refused")
	a.member(unitKey, "gw1", x509.ExtKeyUsageServerAuth, time.Hour, unitCert)
	r.unit.hangUp(3)
	h.waitCarrier(true)
}

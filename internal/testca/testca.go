// Package testca gives tests a certification authority.
package testca

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority issues certificates. If a method fails, it ends the test.
type Authority struct {
	Key  ed25519.PrivateKey
	Cert *x509.Certificate
	File string // with Cert in PEM; it is removed at the end of the test
}

// New creates an authority whose certificate is valid from an hour ago for two hours.
func New(t testing.TB) *Authority {
	t.Helper()
	return NewFor(t, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
}

// NewFor creates an authority whose certificate is valid for the given period.
func NewFor(t testing.TB, from, until time.Time) *Authority {
	t.Helper()
	return authority(t, nil, 1, "cluster authority", from, until)
}

// authority creates an authority that above has certified, or that has certified itself.
func authority(t testing.TB, above *Authority, serial int64, name string, from, until time.Time) *Authority {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &Authority{Key: key, File: filepath.Join(t.TempDir(), "ca.pem")}
	a.Cert = &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if above == nil {
		above = a
	}
	if a.Cert, err = x509.ParseCertificate(above.issue(t, a.Cert, key.Public(), a.File)); err != nil {
		t.Fatal(err)
	}
	return a
}

// Issue writes a certificate for a public key to a file, in PEM. Issue sets the serial number
// and the key usage. The template has the other fields.
func (a *Authority) Issue(t testing.TB, template *x509.Certificate, public crypto.PublicKey, file string) {
	t.Helper()
	template.SerialNumber, template.KeyUsage = big.NewInt(2), x509.KeyUsageDigitalSignature
	a.issue(t, template, public, file)
}

// IssueFile is Issue for a new file, whose name it returns.
func (a *Authority) IssueFile(t testing.TB, template *x509.Certificate, public crypto.PublicKey) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "certificate")
	a.Issue(t, template, public, file)
	return file
}

// holder is a key for which certificates are issued.
type holder interface{ Public() crypto.PublicKey }

// IssueTo returns a file with a certificate for a key, with that name and extended key usage. It is
// valid from an hour ago for two hours.
func (a *Authority) IssueTo(t testing.TB, key holder, name string, usage x509.ExtKeyUsage) string {
	t.Helper()
	return a.IssueWithin(t, key, name, usage, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
}

// IssueWithin is IssueTo for a certificate that is valid for the given period.
func (a *Authority) IssueWithin(
	t testing.TB, key holder, name string, usage x509.ExtKeyUsage, from, until time.Time,
) string {
	t.Helper()
	return a.IssueFile(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: until, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}, key.Public())
}

// Intermediate returns an authority that a has certified for the given period.
func (a *Authority) Intermediate(t testing.TB, from, until time.Time) *Authority {
	t.Helper()
	return authority(t, a, 3, "intermediate", from, until)
}

// Join returns a file with the content of others.
func Join(t testing.TB, files ...string) string {
	t.Helper()
	var all []byte
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text...)
	}
	return File(t, string(all))
}

// File returns a file with this content.
func File(t testing.TB, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// PEM returns a file with one block in PEM.
func PEM(t testing.TB, kind string, der []byte) string {
	t.Helper()
	return File(t, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
}

func (a *Authority) issue(t testing.TB, template *x509.Certificate, public crypto.PublicKey, file string) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, a.Cert, public, a.Key)
	if err == nil {
		err = os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// Member returns the template of a certificate with that name and extended key usage. It
// lasts an hour and expires after lasts.
func Member(name string, usage x509.ExtKeyUsage, lasts time.Duration) *x509.Certificate {
	end := time.Now().Add(lasts)
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{usage},
		NotBefore: end.Add(-time.Hour), NotAfter: end,
	}
}

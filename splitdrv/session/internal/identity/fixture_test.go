package identity

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testca"
)

func newKey(t testing.TB) *Key {
	t.Helper()
	key, err := GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// authority issues certificates.
type authority struct{ *testca.Authority }

func newAuthority(t *testing.T) *authority {
	t.Helper()
	return &authority{testca.New(t)}
}

// issue returns a file with a certificate for key.
func (a *authority) issue(t *testing.T, key *Key, name string, usage x509.ExtKeyUsage) string {
	t.Helper()
	return a.issueFor(t, key, name, usage, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
}

// issueFor is issue for a certificate that is valid between from and until.
func (a *authority) issueFor(
	t *testing.T, key *Key, name string, usage x509.ExtKeyUsage, from, until time.Time,
) string {
	t.Helper()
	return a.issueAs(t, key, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: until, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	})
}

// issueAs is issue for a certificate with the content of a template.
func (a *authority) issueAs(t *testing.T, key *Key, template *x509.Certificate) string {
	t.Helper()
	return a.IssueFile(t, template, key.Public())
}

func writePEM(t *testing.T, kind string, der []byte) string {
	t.Helper()
	return writeFile(t, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

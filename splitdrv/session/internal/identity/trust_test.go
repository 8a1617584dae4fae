package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testca"
	"github.com/splitnic/splitnic/internal/testenv"
)

func TestTrust(t *testing.T) {
	a, b := newKey(t).Fingerprint(), newKey(t).Fingerprint()
	file := testca.File(t, fmt.Sprintf("# hosts\n\n node1=%v  # rack 1\n\t%v\n", a, b))
	var trust Trust
	if err := trust.AddFile(file); err != nil {
		t.Fatal(err)
	}
	if name, ok := trust.pins[a]; !ok || name != "node1" {
		t.Errorf("%v is %q, %v", a, name, ok)
	}
	if name, ok := trust.pins[b]; !ok || name != "" {
		t.Errorf("%v is %q, %v", b, name, ok)
	}
	if err := trust.Add("node1=" + a.String()); err != nil {
		t.Errorf("the same again: %v", err)
	}
	for _, entry := range []string{
		"", "node1", "sha256:", "=" + b.String(), "node 1=" + b.String(), "node2=" + a.String(),
		a.String()[:49], a.String() + "A", "sha512:" + a.String()[7:], strings.ToUpper(a.String()),
	} {
		if err := trust.Add(entry); err == nil {
			t.Errorf("%q was taken", entry)
		}
	}
	if err := trust.AddFile("/nonexistent/trust"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

func TestMistakenKeyFileIsNotQuoted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if err := SaveKey(path, newKey(t)); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	secret := strings.Split(string(b), "\n")[1]
	var trust Trust
	for _, err := range []error{trust.AddFile(path), trust.Add(secret), trust.AddCA(path)} {
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("error %v", err)
		}
	}
}

// issued returns a chain of n certificates, each issued by the next one, and the last one by
// issuer. All have one name and keys whose signatures take long to verify.
func issued(t *testing.T, n int, issuer *testca.Authority) (chain []*x509.Certificate, leaf *ecdsa.PrivateKey) {
	t.Helper()
	parent, key := issuer.Cert, any(issuer.Key)
	for i := n; i > 0; i-- {
		own, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i)), Subject: pkix.Name{CommonName: "cluster authority"},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			BasicConstraintsValid: true, IsCA: i > 1, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, own.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		chain = append([]*x509.Certificate{cert}, chain...)
		parent, key, leaf = cert, own, own
	}
	return chain, leaf
}

// TestChains verifies certificates with intermediate ones between them and the authority.
func TestChains(t *testing.T) {
	a, stranger := testca.New(t), testca.New(t)
	var trust Trust
	if err := trust.AddCA(a.File); err != nil {
		t.Fatal(err)
	}
	good, _ := issued(t, maxChain, a)
	long, _ := issued(t, maxChain+1, a)
	others, _ := issued(t, maxChain, stranger)
	short, _ := issued(t, 2, a)
	for _, tt := range []struct {
		name   string
		chain  []*x509.Certificate
		issued int // number of certificates issued by the authority
		want   error
	}{
		{"one", good[maxChain-1:], 1, nil},
		{"as many as there may be", good, maxChain, nil},
		{"in another order", []*x509.Certificate{good[0], good[3], good[4], good[1], good[2]}, maxChain, nil},
		{"with the authority's own", append(short[:2:2], a.Cert), 3, nil},
		{"with a stranger's", append(short[:2:2], others[:2]...), 2, nil},
		{"too many", long, maxChain + 1, errLongChain},
		{"a stranger's, of the same names", others, 0, x509.UnknownAuthorityError{}},
		// Anyone can have got these. No other signature must be verified because of them.
		{"a stranger's, with the authority's own", append(others[:4:4], a.Cert), 1, x509.UnknownAuthorityError{}},
		{"a stranger's, with one that the authority has issued", append(others[:4:4], short[1]), 1,
			x509.UnknownAuthorityError{}},
		{"a stranger's, behind those of another", []*x509.Certificate{others[0], short[0], short[1]}, 2,
			x509.UnknownAuthorityError{}},
	} {
		_, err := trust.Verify(tt.chain, x509.ExtKeyUsageClientAuth, time.Now())
		var unknown x509.UnknownAuthorityError
		strange := errors.As(tt.want, &unknown)
		if strange && !errors.As(err, &unknown) || !strange && !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
		some, first := trust.issued(tt.chain)
		if len(some) != tt.issued || first == strange {
			t.Errorf("%s: %d issued by the authority, the first one among them: %t", tt.name, len(some), first)
		}
	}
	why := &UntrustedError{Peer: "the host", Addr: "10.0.0.1:7", Reason: errLongChain}
	testenv.Explained(t, "authenticate the host at 10.0.0.1:7: "+why.Error())
}

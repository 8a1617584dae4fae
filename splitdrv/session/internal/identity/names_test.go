package identity

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testca"
)

// between returns an intermediate authority that a has issued, with the content of a template.
func between(t *testing.T, a *testca.Authority, template *x509.Certificate) (*x509.Certificate, ed25519.PrivateKey) {
	t.Helper()
	template.SerialNumber, template.Subject = big.NewInt(7), pkix.Name{CommonName: "rack 7"}
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = a.Cert.NotBefore, a.Cert.NotAfter
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return signed(t, template, key, a.Cert, a.Key), key
}

// signed returns the certificate of key with the content of a template, issued by an authority.
func signed(
	t *testing.T, template *x509.Certificate, key ed25519.PrivateKey, by *x509.Certificate, byKey ed25519.PrivateKey,
) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, by, key.Public(), byKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// TestConstrainedNames has an authority that may issue only certain names, and certificates with
// various subject alternative names. Constraints apply to these and not to the common name, which
// must then not be a name.
func TestConstrainedNames(t *testing.T) {
	a := testca.New(t)
	_, rack7, err := net.ParseCIDR("10.7.0.0/16")
	if err != nil {
		t.Fatal(err)
	}
	uri, err := url.Parse("spiffe://cluster/alpha")
	if err != nil {
		t.Fatal(err)
	}
	// Only names in the directory below O=rack 7, in an extension that is not critical.
	directory, err := asn1.Marshal(struct {
		Permitted []struct {
			Base asn1.RawValue
		} `asn1:"tag:0"`
	}{[]struct{ Base asn1.RawValue }{{asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 4, IsCompound: true,
		Bytes: []byte("\x30\x11\x31\x0f\x30\x0d\x06\x03\x55\x04\x0a\x0c\x06rack 7")}}}})
	if err != nil {
		t.Fatal(err)
	}
	free, dns := x509.Certificate{}, x509.Certificate{PermittedDNSDomains: []string{"rack7.cluster"}}
	for _, tt := range []struct {
		name   string
		issuer x509.Certificate
		leaf   x509.Certificate // its common name is alpha
		want   string
		fails  bool
	}{
		{name: "common name alone", issuer: free, want: "alpha"},
		{name: "common name and another", issuer: free, leaf: x509.Certificate{DNSNames: []string{"beta"}}, want: "beta"},
		{name: "common name and an address", issuer: free,
			leaf: x509.Certificate{IPAddresses: []net.IP{{10, 7, 0, 1}}}, want: ""},
		{name: "common name and a URI", issuer: free, leaf: x509.Certificate{URIs: []*url.URL{uri}}, want: ""},
		{name: "common name and a mailbox", issuer: free,
			leaf: x509.Certificate{EmailAddresses: []string{"root@cluster"}}, want: ""},
		{name: "constraint, common name alone", issuer: dns, want: ""},
		{name: "constraint, permitted", issuer: dns,
			leaf: x509.Certificate{DNSNames: []string{"node1.rack7.cluster"}}, want: "node1.rack7.cluster"},
		{name: "constraint, not permitted", issuer: dns, leaf: x509.Certificate{DNSNames: []string{"alpha"}}, fails: true},
		{name: "constraint, an address", issuer: dns,
			leaf: x509.Certificate{IPAddresses: []net.IP{{10, 7, 0, 1}}}, want: ""},
		{name: "excluded", issuer: x509.Certificate{ExcludedDNSDomains: []string{"alpha"}}, want: ""},
		{name: "addresses only", issuer: x509.Certificate{PermittedIPRanges: []*net.IPNet{rack7}}, want: ""},
		{name: "a kind that is not understood", issuer: x509.Certificate{ExtraExtensions: []pkix.Extension{
			{Id: asn1.ObjectIdentifier{2, 5, 29, 30}, Value: directory}}}, want: ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			intermediate, by := between(t, a, &tt.issuer)
			_, key, err := ed25519.GenerateKey(rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			tt.leaf.SerialNumber, tt.leaf.Subject = big.NewInt(8), pkix.Name{CommonName: "alpha"}
			tt.leaf.NotBefore, tt.leaf.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(time.Minute)
			for _, role := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
				tt.leaf.ExtKeyUsage = []x509.ExtKeyUsage{role}
				leaf := signed(t, &tt.leaf, key, intermediate, by)
				var trust Trust
				if err := trust.AddCA(a.File); err != nil {
					t.Fatal(err)
				}
				v, err := trust.Verify([]*x509.Certificate{leaf, intermediate}, role, time.Now())
				if (err != nil) != tt.fails || v.ID.Name != tt.want {
					t.Errorf("it is %q, %v; want %q", v.ID.Name, err, tt.want)
				}
				if role != x509.ExtKeyUsageServerAuth || tt.fails {
					continue
				}
				// A host that expects alpha must not take another for it.
				if err := trust.Expect("alpha"); err != nil {
					t.Fatal(err)
				}
				_, err = trust.Verify([]*x509.Certificate{leaf, intermediate}, role, time.Now())
				if errors.As(err, new(nameError)) != (tt.want != "alpha") {
					t.Errorf("alpha is expected: %v", err)
				}
			}
		})
	}
}

// TestConstrainedByOne has an authority of which there are two certificates, one of them with a
// constraint. The common name must not be a name, in any order of the certificates.
func TestConstrainedByOne(t *testing.T) {
	a := testca.New(t)
	free, by := between(t, a, &x509.Certificate{})
	template := *free
	template.PermittedDNSDomains, template.SerialNumber = []string{"rack7.cluster"}, big.NewInt(9)
	constrained := signed(t, &template, by, a.Cert, a.Key)
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := signed(t, &x509.Certificate{SerialNumber: big.NewInt(8), Subject: pkix.Name{CommonName: "alpha"},
		NotBefore: free.NotBefore, NotAfter: free.NotAfter, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, key, free, by)
	var trust Trust
	if err := trust.AddCA(a.File); err != nil {
		t.Fatal(err)
	}
	for _, chain := range [][]*x509.Certificate{{leaf, free, constrained}, {leaf, constrained, free}} {
		if v, err := trust.Verify(chain, x509.ExtKeyUsageClientAuth, time.Now()); err != nil || v.ID.Name != "" {
			t.Errorf("it is %q, %v", v.ID.Name, err)
		}
	}
}

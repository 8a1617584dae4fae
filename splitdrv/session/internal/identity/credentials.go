package identity

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

// Credentials are what a side shows its peers, and whom it trusts. They do not change.
type Credentials struct {
	Certificate tls.Certificate
	Leaf        *x509.Certificate // first of Certificate
	Fingerprint Fingerprint
	Trust       *Trust // nil: insecure
	Issued      bool   // an authority has issued Certificate
	file        string // with Certificate, if Issued
	Term        Term   // of Certificate and its intermediates; zero unless Issued
}

// NewCredentials returns the credentials of the owner of key. certFile is a PEM file with its
// certificate, or empty: then a self-signed certificate is created.
func NewCredentials(key *Key, certFile string, trust *Trust) (Credentials, error) {
	c := Credentials{Fingerprint: key.Fingerprint(), Trust: trust, Issued: certFile != "", file: certFile}
	var err error
	if c.Issued {
		c.Certificate, err = loadCertificate(certFile, key)
	} else {
		c.Certificate, err = selfSigned(key)
	}
	if err != nil {
		return c, err
	}
	if c.Leaf, err = x509.ParseCertificate(c.Certificate.Certificate[0]); err != nil {
		return c, fmt.Errorf("own certificate: %w", err)
	}
	if c.Issued {
		c.Term = Term{c.Leaf.NotBefore, c.Leaf.NotAfter}
		for _, der := range c.Certificate.Certificate[1:] {
			// Anything else behind the certificate is left to the peer to reject.
			if cert, err := x509.ParseCertificate(der); err == nil {
				c.Term = c.Term.Sooner(Term{c.Term.Begins, cert.NotAfter})
			}
		}
	}
	return c, nil
}

func selfSigned(key *Key) (tls.Certificate, error) {
	// Peers check only the key. The dates do not matter, so that a machine with a wrong
	// clock can connect.
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "splitnic"},
		NotBefore:    time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // RFC 5280 §4.1.2.5: no expiry
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key.private)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key.private}, nil
}

func loadCertificate(path string, key *Key) (tls.Certificate, error) {
	b, err := readFile(path)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certificate: %w", err)
	}
	certificate := tls.Certificate{PrivateKey: key.private}
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			certificate.Certificate = append(certificate.Certificate, block.Bytes)
		}
	}
	if len(certificate.Certificate) == 0 {
		return tls.Certificate{}, fmt.Errorf("certificate: no certificate in PEM in %s", path)
	}
	leaf, err := x509.ParseCertificate(certificate.Certificate[0])
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certificate %s: %w", path, err)
	}
	if f := FingerprintOf(leaf); f != key.Fingerprint() {
		return tls.Certificate{}, fmt.Errorf("certificate %s: it is for key %v, this side's key is %v; put this side's own certificate first in the file", path, f, key.Fingerprint())
	}
	return certificate, nil
}

package identity

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// Expired reports whether err means that a certificate has expired or is not valid yet.
func Expired(err error) bool {
	var invalid x509.CertificateInvalidError
	return errors.As(err, &invalid) && invalid.Reason == x509.Expired
}

// untimely returns such an error, like that of package x509, if cert is not valid at a time.
func untimely(cert *x509.Certificate, now time.Time) error {
	if now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
		return x509.CertificateInvalidError{Cert: cert, Reason: x509.Expired, Detail: validity(cert, now)}
	}
	return nil
}

// untimelyFix returns advice for a certificate that is not valid now, which may be that of an
// authority. The clock may also be wrong.
func untimelyFix(err error) string {
	var invalid x509.CertificateInvalidError
	errors.As(err, &invalid)
	cert, now := invalid.Cert, time.Now()
	whose := "its certificate"
	if cert.IsCA {
		whose = "the certificate of its authority"
	}
	if now.Before(cert.NotBefore) {
		return fmt.Sprintf("%s is %s: set this machine's clock, unless it is right", whose, validity(cert, now))
	}
	return fmt.Sprintf("%s is %s: it needs a new one, unless this machine's clock is wrong", whose, validity(cert, now))
}

func validity(cert *x509.Certificate, now time.Time) string {
	stamp := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	return fmt.Sprintf("valid from %s to %s, and it is %s here", stamp(cert.NotBefore), stamp(cert.NotAfter), stamp(now))
}

// Term is the time for which something is valid.
type Term struct{ Begins, Expires time.Time }

// Sooner returns the one of two terms that ends first. The zero term has no end.
func (t Term) Sooner(o Term) Term {
	if t.Expires.IsZero() || !o.Expires.IsZero() && o.Expires.Before(t.Expires) {
		return o
	}
	return t
}

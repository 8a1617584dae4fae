package identity

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// purposeError means that a certificate is not for the role of its owner, or not only for
// that.
type purposeError struct{ usage x509.ExtKeyUsage }

// Error describes the required purpose, in the words of openssl.
func (e purposeError) Error() string {
	purpose, other := "client", "server"
	if e.usage == x509.ExtKeyUsageServerAuth {
		purpose, other = other, purpose
	}
	return fmt.Sprintf("its certificate must be for %s authentication and not for %s authentication: have it issued with extendedKeyUsage=%sAuth", purpose, other, purpose)
}

// otherPart returns the purpose of the certificates of the other role.
func otherPart(usage x509.ExtKeyUsage) x509.ExtKeyUsage {
	if usage == x509.ExtKeyUsageServerAuth {
		return x509.ExtKeyUsageClientAuth
	}
	return x509.ExtKeyUsageServerAuth
}

// checkPurpose returns an error unless a certificate has the given purpose, and not that of
// the other role. A certificate without purposes is valid for any (RFC 5280 §4.2.1.12): with
// such a certificate, or one for both roles, a host could impersonate the I/O unit towards
// all other hosts.
func checkPurpose(cert *x509.Certificate, usage x509.ExtKeyUsage) error {
	if slices.Contains(cert.ExtKeyUsage, usage) && !slices.Contains(cert.ExtKeyUsage, otherPart(usage)) &&
		!slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageAny) {
		return nil
	}
	return purposeError{usage}
}

// nameError means that a certificate has none of the expected names of I/O units.
type nameError struct{ has, want []string }

// Error names both lists.
func (e nameError) Error() string {
	has := "nobody that has a name"
	if len(e.has) > 0 {
		has = strings.Join(e.has, ", ")
	}
	return fmt.Sprintf("its certificate is for %s, but --iounit-name expects %s", has, strings.Join(e.want, " or "))
}

// The identifiers of extensions of certificates (RFC 5280 §4.2.1.6 and §4.2.1.10).
var (
	alternativeNames = asn1.ObjectIdentifier{2, 5, 29, 17}
	nameConstraints  = asn1.ObjectIdentifier{2, 5, 29, 30}
)

func has(cert *x509.Certificate, extension asn1.ObjectIdentifier) bool {
	return slices.ContainsFunc(cert.Extensions, func(e pkix.Extension) bool { return e.Id.Equal(extension) })
}

// constrained reports whether an authority in one of the chains of a certificate may issue
// only certain names.
func constrained(chains [][]*x509.Certificate) bool {
	for _, certs := range chains {
		if slices.ContainsFunc(certs[1:], func(c *x509.Certificate) bool { return has(c, nameConstraints) }) {
			return true
		}
	}
	return false
}

// certificateNames returns the valid names in a certificate with these chains: its DNS names,
// or else its common name. The common name counts only in a certificate without alternative
// names, of authorities without name constraints: constraints restrict the alternative names,
// so that a restricted authority could give anybody's name as the common name.
func certificateNames(cert *x509.Certificate, chains [][]*x509.Certificate) []string {
	candidates := cert.DNSNames
	if !has(cert, alternativeNames) && !constrained(chains) {
		candidates = []string{cert.Subject.CommonName}
	}
	var names []string
	for _, name := range candidates {
		if ValidName(name) {
			names = append(names, name)
		}
	}
	return names
}

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

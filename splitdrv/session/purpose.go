package session

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
)

// purposeError says that a certificate is not for its owner's part, or not for
// that alone.
type purposeError struct{ usage x509.ExtKeyUsage }

// Error says what the certificate must be for, in the words of openssl.
func (e purposeError) Error() string {
	purpose, other := "client", "server"
	if e.usage == x509.ExtKeyUsageServerAuth {
		purpose, other = other, purpose
	}
	return fmt.Sprintf("its certificate must be for %s authentication and not for %s authentication: have it issued with extendedKeyUsage=%sAuth", purpose, other, purpose)
}

// otherPart is the purpose of certificates of the peers of those with this one.
func otherPart(usage x509.ExtKeyUsage) x509.ExtKeyUsage {
	if usage == x509.ExtKeyUsageServerAuth {
		return x509.ExtKeyUsageClientAuth
	}
	return x509.ExtKeyUsageServerAuth
}

// checkPurpose demands of a certificate that it names this purpose, and not that of
// the other part. A certificate that names none is good for any (RFC 5280
// §4.2.1.12): a host with one of these, or with one for both, could play the I/O
// unit towards all other hosts.
func checkPurpose(cert *x509.Certificate, usage x509.ExtKeyUsage) error {
	if slices.Contains(cert.ExtKeyUsage, usage) && !slices.Contains(cert.ExtKeyUsage, otherPart(usage)) &&
		!slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageAny) {
		return nil
	}
	return purposeError{usage}
}

// nameError says that a certificate is that of another I/O unit than those
// expected.
type nameError struct{ has, want []string }

// Error has both lists.
func (e nameError) Error() string {
	has := "nobody that has a name"
	if len(e.has) > 0 {
		has = strings.Join(e.has, ", ")
	}
	return fmt.Sprintf("its certificate is for %s, but --iounit-name expects %s", has, strings.Join(e.want, " or "))
}

// certificateNames are those in the certificate that can be names here, the common
// name first.
func certificateNames(cert *x509.Certificate) []string {
	var names []string
	for _, name := range append([]string{cert.Subject.CommonName}, cert.DNSNames...) {
		if ValidName(name) {
			names = append(names, name)
		}
	}
	return names
}

// certificateName is the first of them, "" if there is none.
func certificateName(cert *x509.Certificate) string {
	if names := certificateNames(cert); len(names) > 0 {
		return names[0]
	}
	return ""
}

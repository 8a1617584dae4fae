package session

import "crypto/x509"

type role int

const (
	roleHost role = iota
	roleUnit
)

func (r role) String() string {
	if r == roleHost {
		return "the host"
	}
	return "the I/O unit"
}

// usage returns the required purpose of a peer's certificate.
func (r role) usage() x509.ExtKeyUsage {
	if r == roleHost {
		return x509.ExtKeyUsageClientAuth
	}
	return x509.ExtKeyUsageServerAuth
}

package session

import "crypto/x509"

// role is the part of one side.
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

// usage is what a peer's certificate must be for.
func (r role) usage() x509.ExtKeyUsage {
	if r == roleHost {
		return x509.ExtKeyUsageClientAuth
	}
	return x509.ExtKeyUsageServerAuth
}

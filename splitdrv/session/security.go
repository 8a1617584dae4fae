package session

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/session/internal/identity"
)

// Security has the identity of this side and the peers that it trusts. It is returned by
// NewSecurity or Insecure, and may be shared by any number of connections. Update changes it
// also for existing connections. Any goroutine may call its methods.
type Security struct {
	insecure bool
	run      protocol.Run                     // run of this process, for its platform identifier
	now      atomic.Pointer[func() time.Time] // wall clock; nil: time.Now

	mu      sync.Mutex // guards the fields below; held only for short times
	made    identity.Credentials
	changes uint64                       // number of changes of made
	changed chan struct{}                // closed at the next change
	conns   map[*authentication]struct{} // existing connections with a trusted peer
}

// platforms has the identifiers of both sides of a session, or 0.
type platforms struct{ own, peer protocol.Platform }

// authentication has the certificates that the ends of a connection have shown, and the
// results of their verification. It is the part of a Conn that Security uses.
type authentication struct {
	security *Security
	peerRole role
	remote   net.Addr
	tls      *tls.Conn // set before the connection is authenticated
	offered  []string  // application protocols of a client; written during the TLS handshake
	// conn is the connection. Err returns nil while it lasts. expel ends it, and reports
	// false if it had already ended.
	conn interface {
		Err() error
		expel(*RevokedError) bool
	}

	verdict atomic.Pointer[identity.Verdict]     // result for the peer
	showed  atomic.Pointer[identity.Credentials] // credentials that this side has shown
	issued  platforms                            // written during the handshake of the session
	session atomic.Pointer[string]               // identifier of an established session that can be renewed, or nil
}

// NewSecurity returns a Security with mutual authentication: this side proves that it has
// key, and accepts only peers that trust trusts. certFile is a PEM file with a certificate
// that an authority has issued for key, followed by intermediates. If it is empty, a
// self-signed certificate is created, which suffices for peers that trust the key's
// fingerprint.
func NewSecurity(key *Key, certFile string, trust *Trust) (*Security, error) {
	if trust == nil || trust.Empty() {
		return nil, errors.New("no peer is trusted; name the peers' keys with --trust sha256:…, or in the file of --trust-file, " +
			"or their authority with --ca FILE")
	}
	return newSecurity(key, certFile, trust)
}

func newRun() (run protocol.Run) {
	rand.Read(run[:]) // never fails
	return run
}

func newSecurity(key *Key, certFile string, trust *Trust) (*Security, error) {
	made, err := identity.NewCredentials(key, certFile, trust)
	if err != nil {
		return nil, err
	}
	return &Security{
		made: made, insecure: trust == nil, run: newRun(), changed: make(chan struct{}),
		conns: make(map[*authentication]struct{}),
	}, nil
}

// Insecure returns a Security with a new key that accepts any other insecure peer. It is
// meant for trials, and for networks in which every station may connect.
func Insecure() (*Security, error) {
	key, err := GenerateKey()
	if err != nil {
		return nil, err
	}
	return newSecurity(key, "", nil)
}

// Fingerprint returns the fingerprint of this side's key, for new connections.
func (s *Security) Fingerprint() Fingerprint { return s.current().Fingerprint }

// Platform returns the identifier of this side, for new connections. It depends on the key
// and on the run of the process.
func (s *Security) Platform() protocol.Platform {
	return protocol.PlatformOf(s.Fingerprint(), s.run)
}

// current returns the credentials for new connections.
func (s *Security) current() identity.Credentials {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made
}

// clock returns the time at which certificates must be valid.
func (s *Security) clock() time.Time {
	if now := s.now.Load(); now != nil {
		return (*now)()
	}
	return time.Now()
}

// Problems returns why peers will reject the certificate of this side, which is that of an I/O
// unit or of a host, and why this side will reject every peer with a certificate. Peers know
// better: they may trust other authorities. Each problem names its file.
func (s *Security) Problems(unit bool) []error {
	made, r := s.current(), roleHost
	if unit {
		r = roleUnit
	}
	return made.Problems(r.usage(), s.clock())
}

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

package session

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/protocol"
)

// Security has the identity of this side and the peers that it trusts. It is returned by
// NewSecurity or Insecure, and may be shared by any number of connections. Update changes it
// also for existing connections. Any goroutine may call its methods.
type Security struct {
	insecure bool
	run      protocol.Run                     // run of this process, for its platform identifier
	now      atomic.Pointer[func() time.Time] // wall clock; nil: time.Now

	mu      sync.Mutex // guards the fields below; held only for short times
	made    credentials
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

	verdict atomic.Pointer[verdict]     // result for the peer
	showed  atomic.Pointer[credentials] // credentials that this side has shown
	issued  platforms                   // written during the handshake of the session
	session atomic.Pointer[string]      // identifier of an established session that can be renewed, or nil
}

// credentials is the content of a Security. It does not change.
type credentials struct {
	certificate tls.Certificate
	leaf        *x509.Certificate // first of certificate
	fingerprint Fingerprint
	trust       *Trust // nil: insecure
	issued      bool   // an authority has issued certificate
	file        string // with certificate, if issued
	term        Term   // of certificate and its intermediates; zero unless issued
}

// NewSecurity returns a Security with mutual authentication: this side proves that it has
// key, and accepts only peers that trust trusts. certFile is a PEM file with a certificate
// that an authority has issued for key, followed by intermediates. If it is empty, a
// self-signed certificate is created, which suffices for peers that trust the key's
// fingerprint.
func NewSecurity(key *Key, certFile string, trust *Trust) (*Security, error) {
	if trust == nil || trust.empty() {
		return nil, errors.New("no peer is trusted; name the peers' keys with --trust sha256:…, or in the file of --trust-file, " +
			"or their authority with --ca FILE")
	}
	made := credentials{fingerprint: key.Fingerprint(), trust: trust, issued: certFile != "", file: certFile}
	var err error
	if certFile == "" {
		made.certificate, err = selfSigned(key)
	} else {
		made.certificate, err = loadCertificate(certFile, key)
	}
	if err != nil {
		return nil, err
	}
	return newSecurity(made)
}

func newRun() (run protocol.Run) {
	rand.Read(run[:]) // never fails
	return run
}

func newSecurity(made credentials) (*Security, error) {
	var err error
	if made.leaf, err = x509.ParseCertificate(made.certificate.Certificate[0]); err != nil {
		return nil, fmt.Errorf("own certificate: %w", err)
	}
	if made.issued {
		made.term = Term{made.leaf.NotBefore, made.leaf.NotAfter}
		for _, der := range made.certificate.Certificate[1:] {
			// Anything else behind the certificate is left to the peer to reject.
			if cert, err := x509.ParseCertificate(der); err == nil {
				made.term = made.term.sooner(Term{made.term.Begins, cert.NotAfter})
			}
		}
	}
	return &Security{
		made: made, insecure: made.trust == nil, run: newRun(), changed: make(chan struct{}),
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
	certificate, err := selfSigned(key)
	if err != nil {
		return nil, err
	}
	return newSecurity(credentials{certificate: certificate, fingerprint: key.Fingerprint()})
}

// Fingerprint returns the fingerprint of this side's key, for new connections.
func (s *Security) Fingerprint() Fingerprint { return s.current().fingerprint }

// Platform returns the identifier of this side, for new connections. It depends on the key
// and on the run of the process.
func (s *Security) Platform() protocol.Platform {
	return protocol.PlatformOf(s.Fingerprint(), s.run)
}

// current returns the credentials for new connections.
func (s *Security) current() credentials {
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
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.private.Public(), key.private)
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
	if f := certificateFingerprint(leaf); f != key.Fingerprint() {
		return tls.Certificate{}, fmt.Errorf("certificate %s: it is for key %v, this side's key is %v; put this side's own certificate first in the file", path, f, key.Fingerprint())
	}
	return certificate, nil
}

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

// Security is who this side is and whom it trusts. Make it with NewSecurity or
// Insecure; it may be shared by any number of connections. Update changes it
// while they last. Its methods may be called from any goroutine.
type Security struct {
	insecure bool
	run      protocol.Run                     // of this process, for its platform identifier
	now      atomic.Pointer[func() time.Time] // the clock on the wall; nil: time.Now

	mu      sync.Mutex // guards what follows; held for moments
	made    credentials
	changes uint64                       // of made
	changed chan struct{}                // closed at the next change
	conns   map[*authentication]struct{} // that live and whose peer was found to be trusted
}

// platforms are the identifiers of both sides of a session, or 0.
type platforms struct{ own, peer protocol.Platform }

// authentication is what a connection's ends have shown each other, and what follows
// from it. It is the part of a Conn that a Security knows of.
type authentication struct {
	security *Security
	peerRole role
	remote   net.Addr
	tls      *tls.Conn // by which the connection is secured; set before it is authenticated
	offered  []string  // protocols, by a client; written during the handshake of TLS
	// conn is the connection. Err is nil while it lives; expel ends it, and reports whether
	// it had not ended before.
	conn interface {
		Err() error
		expel(*RevokedError) bool
	}

	verdict atomic.Pointer[verdict]     // on the peer
	showed  atomic.Pointer[credentials] // what this side showed
	issued  platforms                   // written during the handshake of the session
	session atomic.Pointer[string]      // its identifier, of one that can be renewed; nil before it is established
}

// credentials are what a Security is made of. They do not change.
type credentials struct {
	certificate tls.Certificate
	leaf        *x509.Certificate // of certificate
	fingerprint Fingerprint
	trust       *Trust // nil: insecure
	issued      bool   // certificate is an authority's
	term        Term   // of certificate and those behind it; zero unless issued
}

// NewSecurity is for mutual authentication: this side proves that it has key,
// and talks only to whom trust trusts. certFile is the PEM file of a
// certificate (with intermediates behind it) that an authority issued for key;
// if it is empty a self-signed one is made, which is all that peers need who
// trust the key's fingerprint.
func NewSecurity(key *Key, certFile string, trust *Trust) (*Security, error) {
	if trust == nil || trust.empty() {
		return nil, errors.New("no peer is trusted; name the peers' keys with --trust sha256:…, or in the file of --trust-file, " +
			"or their authority with --ca FILE")
	}
	made := credentials{fingerprint: key.Fingerprint(), trust: trust, issued: certFile != ""}
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
			// Whatever is behind it that is no certificate is the peer's to refuse.
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

// Insecure encrypts with a key made on the spot and talks to anybody else who
// is insecure. For trials, and for networks where whoever can connect may.
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

// Fingerprint is what the peers see of this side, from the next connection on.
func (s *Security) Fingerprint() Fingerprint { return s.current().fingerprint }

// Platform is the identifier of this side, which peers are told from the next
// connection on: it follows from the key and from the run of the process.
func (s *Security) Platform() protocol.Platform {
	return protocol.PlatformOf(s.Fingerprint(), s.run)
}

// current is what connections are made with that begin now.
func (s *Security) current() credentials {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made
}

// clock is the time by which certificates are judged.
func (s *Security) clock() time.Time {
	if now := s.now.Load(); now != nil {
		return (*now)()
	}
	return time.Now()
}

func selfSigned(key *Key) (tls.Certificate, error) {
	// Peers look at the key alone, so the dates are as wide as they go: a node
	// without a clock must be able to connect.
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

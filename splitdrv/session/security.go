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
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/protocol"
)

// The application protocols of TLS (RFC 7301). That they differ makes an
// insecure side and a secure one fail early, and for a reason that both can
// name.
const (
	alpnSecure   = "splitnic"
	alpnInsecure = "splitnic-insecure"
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
	changes uint64             // of made
	changed chan struct{}      // closed at the next change
	conns   map[*Conn]struct{} // that live and whose peer was found to be trusted
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
		return nil, errors.New("nobody is trusted; name the peers' keys with --trust sha256:…, or their authority with --ca FILE")
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
		conns: make(map[*Conn]struct{}),
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

func (s *Security) alpn() string {
	if s.insecure {
		return alpnInsecure
	}
	return alpnSecure
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

// tlsConfig is for connection c. The verdict on the peer is c's before the
// handshake returns, as are the protocols that a client offered.
func (s *Security) tlsConfig(c *Conn) *tls.Config {
	made := s.current()
	c.showed.Store(&made)
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{made.certificate},
		NextProtos:             []string{s.alpn()},
		ClientAuth:             tls.RequireAnyClientCert,
		SessionTicketsDisabled: true, // every connection is authenticated anew
		// The verification is VerifyConnection: keys instead of host names.
		InsecureSkipVerify: true,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			c.offered = slices.Clone(hello.SupportedProtos)
			return nil, nil
		},
		VerifyConnection: func(cs tls.ConnectionState) error {
			if cs.NegotiatedProtocol != s.alpn() {
				return fmt.Errorf("%v at %v speaks TLS, but not as splitnic: %w", c.peerRole, c.RemoteAddr(), ErrNotSplitnic)
			}
			return s.admit(c, cs.PeerCertificates)
		},
	}
}

// TLS alerts (RFC 8446 §6) that say something about the peer's policy.
const (
	alertBadCertificate        tls.AlertError = 42
	alertNoApplicationProtocol tls.AlertError = 120
)

// remoteAlert is the error in which package tls reports an alert of the peer, or
// nil if err is none. The alert's type is not exported, but it prints like the
// tls.AlertError of its number.
func remoteAlert(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "remote error" {
		return op.Err
	}
	return nil
}

// explain turns an error of the TLS connection to remote into one that names
// what to do, where it can tell. A client learns only from its first read that
// the server did not take its certificate (RFC 8446 §4.4.2).
func (s *Security) explain(err error, peer role, remote net.Addr, offered []string) error {
	alert := remoteAlert(err)
	var record tls.RecordHeaderError
	switch {
	case alert != nil && alert.Error() == alertBadCertificate.Error():
		made := s.current()
		refused := &UntrustedError{Peer: peer.String(), Addr: remote.String(), Fingerprint: made.fingerprint, Ours: true,
			Issued: made.issued}
		if made.issued {
			refused.Reason = untimely(made.leaf, s.clock())
			if refused.Reason == nil {
				refused.Reason = checkPurpose(made.leaf, otherPart(peer.usage()))
			}
		}
		return refused
	case alert != nil && alert.Error() == alertNoApplicationProtocol.Error(), s.otherMode(offered):
		if s.insecure {
			return fmt.Errorf("%v at %v authenticates its peers, this side is insecure; %w", peer, remote, ErrSecurityMode)
		}
		return fmt.Errorf("%v at %v is insecure, this side authenticates its peers; %w", peer, remote, ErrSecurityMode)
	case errors.As(err, &record):
		return fmt.Errorf("%v at %v does not speak TLS: %w", peer, remote, ErrNotSplitnic)
	}
	return err
}

// otherMode reports whether a client offered the other security mode only.
func (s *Security) otherMode(offered []string) bool {
	other := alpnInsecure
	if s.insecure {
		other = alpnSecure
	}
	return slices.Contains(offered, other) && !slices.Contains(offered, s.alpn())
}

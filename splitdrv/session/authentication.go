package session

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/splitnic/splitnic/internal/limit"
	"github.com/splitnic/splitnic/protocol"

	"github.com/splitnic/splitnic/splitdrv/seal"
)

// The application protocols of TLS (RFC 7301). They differ so that an insecure and a secure
// side fail early, and know the reason.
const (
	alpnSecure   = "splitnic"
	alpnInsecure = "splitnic-insecure"
)

func (s *Security) alpn() string {
	if s.insecure {
		return alpnInsecure
	}
	return alpnSecure
}

// tlsConfig returns the TLS configuration of the connection. When the handshake returns, the
// peer is verified (verdict), and offered has the protocols of a client.
func (a *authentication) tlsConfig() *tls.Config {
	s := a.security
	made := s.current()
	a.showed.Store(&made)
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{made.Certificate},
		NextProtos:             []string{s.alpn()},
		ClientAuth:             tls.RequireAnyClientCert,
		SessionTicketsDisabled: true, // every connection is authenticated
		// VerifyConnection verifies the peer, by its key instead of a host name.
		InsecureSkipVerify: true,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			a.offered = slices.Clone(hello.SupportedProtos)
			return nil, nil
		},
		VerifyConnection: func(cs tls.ConnectionState) error {
			if cs.NegotiatedProtocol != s.alpn() {
				return fmt.Errorf("%v speaks TLS, but not as splitnic: %w", a, ErrNotSplitnic)
			}
			return s.admit(a, cs.PeerCertificates)
		},
	}
}

// TLS alerts (RFC 8446 §6) that show why the peer has refused.
const (
	alertBadCertificate        tls.AlertError = 42
	alertNoApplicationProtocol tls.AlertError = 120
)

// remoteAlert returns the error of package tls for an alert of the peer, or nil if err is not
// one. The type of the alert is not exported, but it prints like the tls.AlertError with its
// number.
func remoteAlert(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return op.Err
	}
	return nil
}

// explain returns a more helpful error for an error of the TLS connection, if it knows the
// cause. A client gets the server's refusal of its certificate only in its first read (RFC
// 8446 §4.4.2).
func (a *authentication) explain(err error) error {
	s := a.security
	alert := remoteAlert(err)
	switch {
	case alert != nil && alert.Error() == alertBadCertificate.Error():
		made := s.current()
		return &UntrustedError{
			Peer: a.peerRole.String(), Addr: a.remote.String(), Fingerprint: made.Fingerprint, Ours: true,
			Issued: made.Issued, Reason: made.Fault(a.peerRole.usage(), s.clock()),
		}
	case alert != nil && alert.Error() == alertNoApplicationProtocol.Error(), s.otherMode(a.offered):
		if s.insecure {
			return fmt.Errorf("%v authenticates its peers, this side is insecure; %w", a, ErrSecurityMode)
		}
		return fmt.Errorf("%v is insecure, this side authenticates its peers; %w", a, ErrSecurityMode)
	case as[tls.RecordHeaderError](err):
		return fmt.Errorf("%v does not speak TLS: %w", a, ErrNotSplitnic)
	}
	return err
}

// otherMode reports whether a client has offered only the other security mode.
func (s *Security) otherMode(offered []string) bool {
	other := alpnInsecure
	if s.insecure {
		other = alpnSecure
	}
	return slices.Contains(offered, other) && !slices.Contains(offered, s.alpn())
}

// String returns the peer's role and address.
func (a *authentication) String() string { return fmt.Sprintf("%v at %v", a.peerRole, a.remote) }

// Peer returns the authenticated identity of the peer. Security.Update can change its name.
func (a *authentication) Peer() Identity {
	if v := a.verdict.Load(); v != nil {
		return v.ID
	}
	return Identity{}
}

// LimitKey returns the key of the peer's limits: its public key, or, in insecure mode, the
// machine from which it connects.
func (a *authentication) LimitKey() limit.Key {
	if id := a.Peer(); !id.Insecure {
		return limit.PublicKey(id.Fingerprint)
	}
	return limit.Machine(a.remote)
}

// RemoteAddr returns the peer's TCP address.
func (a *authentication) RemoteAddr() net.Addr { return a.remote }

// Platform returns the identifier of this side in an established session, or 0 if the peer
// does not support identifiers.
func (a *authentication) Platform() protocol.Platform { return a.issued.own }

// PeerPlatform returns the identifier of the peer, likewise.
func (a *authentication) PeerPlatform() protocol.Platform { return a.issued.peer }

// platform returns the identifier of this side for the key that it has shown on this
// connection.
func (a *authentication) platform() protocol.Platform {
	return protocol.PlatformOf(a.showed.Load().Fingerprint, a.security.run)
}

// Term returns the term of the certificate, of those that both sides have shown, that expires
// first. It reports false if none of them expires.
func (a *authentication) Term() (Term, bool) {
	t := Term{}
	if own := a.showed.Load(); own != nil {
		t = own.Term
	}
	if v := a.verdict.Load(); v != nil {
		t = t.Sooner(Term{Begins: v.Begins, Expires: v.Expires})
	}
	return t, !t.Expires.IsZero()
}

// expires reports whether the peer's certificate has expired.
func (a *authentication) expires(now time.Time) bool {
	v := a.verdict.Load()
	return v != nil && !v.Expires.IsZero() && now.After(v.Expires)
}

// The labels of keying material exported from a TLS session (RFC 8446 §7.5) are for private use
// (RFC 5705 §4).
const (
	bindingLabel = "EXPERIMENTAL-splitnic-bind"
	framesLabel  = "EXPERIMENTAL-splitnic-frames"
)

// BindingSize is the size of the secret of Binding in bytes.
const BindingSize = 32

// Binding returns a secret that only the two ends of this connection know, and that no other
// connection has. It can bind something else to the authenticated connection. The TLS
// handshake must be done, as it is after Dial and Accept.
func (a *authentication) Binding() (secret [BindingSize]byte, err error) {
	return a.export(bindingLabel)
}

// Frames is Binding for another secret, from which the keys are derived that encrypt frames and
// messages on the fabric.
func (a *authentication) Frames() (secret [seal.SecretSize]byte, err error) {
	return a.export(framesLabel)
}

func (a *authentication) export(label string) (secret [BindingSize]byte, err error) {
	state := a.tls.ConnectionState()
	material, err := state.ExportKeyingMaterial(label, nil, BindingSize)
	if err != nil {
		return secret, fmt.Errorf("export from the TLS session with %v: %w", a, err)
	}
	return [BindingSize]byte(material), nil
}

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
)

// The application protocols of TLS (RFC 7301). That they differ makes an
// insecure side and a secure one fail early, and for a reason that both can
// name.
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

// tlsConfig is for the connection. There is a verdict on the peer before the handshake
// returns, and the protocols that a client offered are known.
func (a *authentication) tlsConfig() *tls.Config {
	s := a.security
	made := s.current()
	a.showed.Store(&made)
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{made.certificate},
		NextProtos:             []string{s.alpn()},
		ClientAuth:             tls.RequireAnyClientCert,
		SessionTicketsDisabled: true, // every connection is authenticated anew
		// The verification is VerifyConnection: keys instead of host names.
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

// explain turns an error of the TLS connection into one that names what to do, where it
// can tell. A client learns only from its first read that the server did not take its
// certificate (RFC 8446 §4.4.2).
func (a *authentication) explain(err error) error {
	s := a.security
	alert := remoteAlert(err)
	var record tls.RecordHeaderError
	switch {
	case alert != nil && alert.Error() == alertBadCertificate.Error():
		made := s.current()
		refused := &UntrustedError{
			Peer: a.peerRole.String(), Addr: a.remote.String(), Fingerprint: made.fingerprint, Ours: true, Issued: made.issued,
		}
		if made.issued {
			refused.Reason = untimely(made.leaf, s.clock())
			if refused.Reason == nil {
				refused.Reason = checkPurpose(made.leaf, otherPart(a.peerRole.usage()))
			}
		}
		return refused
	case alert != nil && alert.Error() == alertNoApplicationProtocol.Error(), s.otherMode(a.offered):
		if s.insecure {
			return fmt.Errorf("%v authenticates its peers, this side is insecure; %w", a, ErrSecurityMode)
		}
		return fmt.Errorf("%v is insecure, this side authenticates its peers; %w", a, ErrSecurityMode)
	case errors.As(err, &record):
		return fmt.Errorf("%v does not speak TLS: %w", a, ErrNotSplitnic)
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

// String is the peer's role and address.
func (a *authentication) String() string { return fmt.Sprintf("%v at %v", a.peerRole, a.remote) }

// Peer is who the peer proved to be. Security.Update may give it another name.
func (a *authentication) Peer() Identity {
	if v := a.verdict.Load(); v != nil {
		return v.id
	}
	return Identity{}
}

// LimitKey is by whom the peer's work is limited: its key, or, where there are none,
// the machine that it connects from.
func (a *authentication) LimitKey() limit.Key {
	if id := a.Peer(); !id.Insecure {
		return limit.PublicKey(id.Fingerprint)
	}
	return limit.Machine(a.remote)
}

// RemoteAddr is the peer's TCP address.
func (a *authentication) RemoteAddr() net.Addr { return a.remote }

// Platform is the identifier of this side in a session that is established, or
// 0 if the peer knows of none.
func (a *authentication) Platform() protocol.Platform { return a.issued.own }

// PeerPlatform is the identifier of the peer, likewise.
func (a *authentication) PeerPlatform() protocol.Platform { return a.issued.peer }

// platform is the identifier of this side, as the peer of this connection sees it.
func (a *authentication) platform() protocol.Platform {
	return protocol.PlatformOf(a.showed.Load().fingerprint, a.security.run)
}

// Term is that of the certificates which both sides have shown: of the one that
// expires first. It reports false if none of them matters.
func (a *authentication) Term() (Term, bool) {
	t := Term{}
	if own := a.showed.Load(); own != nil {
		t = own.term
	}
	if v := a.verdict.Load(); v != nil {
		t = t.sooner(Term{v.begins, v.expires})
	}
	return t, !t.Expires.IsZero()
}

// expires reports whether the peer's certificate has come to its end.
func (a *authentication) expires(now time.Time) bool {
	v := a.verdict.Load()
	return v != nil && !v.expires.IsZero() && now.After(v.expires)
}

// bindingLabel is for what is exported from a TLS session (RFC 8446 §7.5): one
// for private use, as RFC 5705 §4 has it.
const bindingLabel = "EXPERIMENTAL-splitnic-bind"

// BindingSize is the size in bytes of what Binding returns.
const BindingSize = 32

// Binding is a secret that only the two ends of this connection know, and that
// no other connection has: who knows it took part in the authentication. It is
// for what is to be bound to the connection. The handshake of TLS must be over,
// as it is after Dial and Accept.
func (a *authentication) Binding() (secret [BindingSize]byte, err error) {
	state := a.tls.ConnectionState()
	material, err := state.ExportKeyingMaterial(bindingLabel, nil, BindingSize)
	if err != nil {
		return secret, fmt.Errorf("export from the TLS session with %v: %w", a, err)
	}
	return [BindingSize]byte(material), nil
}

package session

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/testca"
)

func TestHostDoesNotTrustUnit(t *testing.T) {
	h, u := newKey(t), newKey(t)
	ln, rejected := listen(t, ServerConfig{Security: secured(t, u, h.Fingerprint().String())})
	err := knock(t, ln, secured(t, h, newKey(t).Fingerprint().String()))

	var here, there *UntrustedError
	want := fmt.Sprintf("the I/O unit at %v has key %v which is not trusted here; add it with --trust %v", ln.Addr(),
		u.Fingerprint(), u.Fingerprint())
	if !errors.As(err, &here) || here.Ours || here.Fingerprint != u.Fingerprint() || here.Error() != want {
		t.Errorf("host: %v", err)
	}
	err = rejected.next(t)
	if !errors.As(err, &there) || !there.Ours || there.Fingerprint != u.Fingerprint() || there.Peer != "the host" {
		t.Errorf("I/O unit: %v", err)
	}
}

func TestUnitDoesNotTrustHost(t *testing.T) {
	h, u := newKey(t), newKey(t)
	ln, rejected := listen(t, ServerConfig{Security: secured(t, u, newKey(t).Fingerprint().String())})
	host := secured(t, h, u.Fingerprint().String())
	// The verdict is sent over a connection that is then closed. It must never get lost.
	for range 20 {
		err := knock(t, ln, host)
		var here, there *UntrustedError
		want := fmt.Sprintf("the I/O unit at %v does not trust this side's key %v; add it there with --trust %v", ln.Addr(),
			h.Fingerprint(), h.Fingerprint())
		if !errors.As(err, &here) || !here.Ours || here.Error() != want {
			t.Fatalf("host: %v", err)
		}
		if err := rejected.next(t); !errors.As(err, &there) || there.Ours || there.Fingerprint != h.Fingerprint() {
			t.Fatalf("I/O unit: %v", err)
		}
	}
}

func TestInsecure(t *testing.T) {
	ln, _ := listen(t, ServerConfig{Security: insecure(t)})
	c, s := establish(t, ln, insecure(t))
	if !c.Peer().Insecure || !s.Peer().Insecure || c.Peer().Name != "" {
		t.Errorf("peers are %v and %v", c.Peer(), s.Peer())
	}
}

func TestOneSideInsecure(t *testing.T) {
	h, u := newKey(t), newKey(t)
	for _, tt := range []struct {
		name       string
		host, unit *Security
	}{
		{"host", insecure(t), secured(t, u, h.Fingerprint().String())},
		{"I/O unit", secured(t, h, u.Fingerprint().String()), insecure(t)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ln, rejected := listen(t, ServerConfig{Security: tt.unit})
			if err := knock(t, ln, tt.host); !errors.Is(err, ErrSecurityMode) {
				t.Errorf("host: %v", err)
			}
			if err := rejected.next(t); !errors.Is(err, ErrSecurityMode) {
				t.Errorf("I/O unit: %v", err)
			}
		})
	}
}

func TestNotSplitnic(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		if nc, err := ln.Accept(); err == nil {
			nc.Write([]byte("220 mail.example ESMTP\r\n"))
			nc.Close()
		}
	}()
	_, err = Dial(testContext(t), ln.Addr().String(), ClientConfig{Security: insecure(t)})
	if !errors.Is(err, ErrNotSplitnic) {
		t.Errorf("host: %v", err)
	}

	unit, rejected := listen(t, ServerConfig{Security: insecure(t)})
	nc, err := net.Dial("tcp", unit.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
	if err := rejected.next(t); !errors.Is(err, ErrNotSplitnic) {
		t.Errorf("I/O unit: %v", err)
	}
}

// authority issues certificates.
type authority struct{ *testca.Authority }

func newAuthority(t *testing.T) *authority {
	t.Helper()
	return &authority{testca.New(t)}
}

// trusting returns the Security of key with the certificate in a file. It trusts a.
func (a *authority) trusting(t *testing.T, key *Key, certificate string) *Security {
	t.Helper()
	var trust Trust
	if err := trust.AddCA(a.File); err != nil {
		t.Fatal(err)
	}
	s, err := NewSecurity(key, certificate, &trust)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// member returns a Security with a new key and a certificate of a. It trusts a.
func (a *authority) member(t *testing.T, name string, usage x509.ExtKeyUsage) *Security {
	t.Helper()
	key := newKey(t)
	return a.trusting(t, key, a.IssueTo(t, key, name, usage))
}

func TestAuthority(t *testing.T) {
	a := newAuthority(t)
	unit := a.member(t, "gw1.cluster", x509.ExtKeyUsageServerAuth)
	ln, rejected := listen(t, ServerConfig{Security: unit})
	c, s := establish(t, ln, a.member(t, "node17.cluster", x509.ExtKeyUsageClientAuth))
	if c.Peer().Name != "gw1.cluster" || s.Peer().Name != "node17.cluster" {
		t.Errorf("peers are %v and %v", c.Peer(), s.Peer())
	}

	var untrusted *UntrustedError
	// Another authority's certificate, and a self-signed one.
	for name, err := range map[string]error{
		"stranger":    knock(t, ln, trusting(t, newAuthority(t), a)),
		"self-signed": knock(t, ln, secured(t, newKey(t), unit.Fingerprint().String())),
		"unit's":      knock(t, ln, a.member(t, "gw2.cluster", x509.ExtKeyUsageServerAuth)),
	} {
		if !errors.As(err, &untrusted) || !untrusted.Ours {
			t.Errorf("%s: host: %v", name, err)
		}
		if err := rejected.next(t); !errors.As(err, &untrusted) || untrusted.Ours {
			t.Errorf("%s: I/O unit: %v", name, err)
		}
	}

	// A host that acts as an I/O unit.
	rogue, _ := listen(t, ServerConfig{Security: a.member(t, "node18.cluster", x509.ExtKeyUsageClientAuth)})
	if err := knock(t, rogue, a.member(t, "node17.cluster", x509.ExtKeyUsageClientAuth)); !errors.As(err, &untrusted) ||
		untrusted.Ours {
		t.Errorf("host with a host's certificate as I/O unit: %v", err)
	}
}

// trusting returns a Security with a certificate of one authority that trusts another.
func trusting(t *testing.T, issuer, trusted *authority) *Security {
	t.Helper()
	key := newKey(t)
	return trusted.trusting(t, key, issuer.IssueTo(t, key, "stranger", x509.ExtKeyUsageClientAuth))
}

func TestNewSecurityRefuses(t *testing.T) {
	a := newAuthority(t)
	key := newKey(t)
	var trust Trust
	if err := trust.AddCA(a.File); err != nil {
		t.Fatal(err)
	}
	others := a.IssueTo(t, newKey(t), "other", x509.ExtKeyUsageClientAuth)
	for name, err := range map[string]error{
		"nobody trusted":    second(NewSecurity(key, "", &Trust{})),
		"other's key":       second(NewSecurity(key, others, &trust)),
		"no certificate":    second(NewSecurity(key, testca.File(t, "hello"), &trust)),
		"bad certificate":   second(NewSecurity(key, testca.PEM(t, "CERTIFICATE", []byte{1}), &trust)),
		"missing file":      second(NewSecurity(key, "/nonexistent/cert.pem", &trust)),
		"missing authority": trust.AddCA("/nonexistent/ca.pem"),
		"empty authority":   trust.AddCA(testca.File(t, "")),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestNobodyIsTrusted expects that the error about an empty Trust names each way to trust a peer,
// among them the file that packages install empty.
func TestNobodyIsTrusted(t *testing.T) {
	err := second(NewSecurity(newKey(t), "", &Trust{}))
	for _, way := range []string{"--trust sha256:", "--trust-file", "--ca"} {
		if err == nil || !strings.Contains(err.Error(), way) {
			t.Errorf("%s is missing in: %v", way, err)
		}
	}
}

func second(_ *Security, err error) error { return err }

// TestTLSWithoutOurs connects with TLS clients that lack something that a host has. They must be
// rejected.
func TestTLSWithoutOurs(t *testing.T) {
	host, unit := friends(t)
	for _, tt := range []struct {
		name   string
		config *tls.Config
		want   error // nil: any error of package tls
	}{
		{"application protocol", &tls.Config{Certificates: []tls.Certificate{host.made.Certificate}}, ErrNotSplitnic},
		{"certificate", &tls.Config{NextProtos: []string{alpnSecure}}, nil},
		{"TLS 1.3", &tls.Config{
			Certificates: []tls.Certificate{host.made.Certificate}, NextProtos: []string{alpnSecure},
			MaxVersion: tls.VersionTLS12}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ln, rejected := listen(t, ServerConfig{Security: unit})
			tt.config.InsecureSkipVerify = true
			nc, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			c := tls.Client(nc, tt.config)
			defer c.Close()
			if c.Handshake() == nil {
				c.Write(frame(helloWith(t, nil)))
				if b, err := readFrame(c); err == nil {
					t.Errorf("answered with %s", b)
				}
			}
			if err := rejected.next(t); err == nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("I/O unit: %v", err)
			}
		})
	}
}

func TestTLSServerThatIsNoUnit(t *testing.T) {
	host, unit := friends(t)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{unit.made.Certificate}})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		if nc, err := ln.Accept(); err == nil {
			nc.(*tls.Conn).Handshake()
			nc.Close()
		}
	}()
	if _, err := Dial(testContext(t), ln.Addr().String(), ClientConfig{Security: host}); !errors.Is(err, ErrNotSplitnic) {
		t.Errorf("host: %v", err)
	}
}

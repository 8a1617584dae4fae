package session

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
)

// firstWords returns the ClientHello of an honest host.
func firstWords(t *testing.T, host *Security) []byte {
	t.Helper()
	near, far := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c := tls.Client(near, newConn(near, host, roleUnit, time.Now().Add(time.Hour), time.Minute).tlsConfig())
		_ = c.HandshakeContext(ctx) // there is no answer
	}()
	defer func() {
		cancel()
		near.Close()
		far.Close()
		<-done
	}()
	var head [5]byte
	if _, err := far.Read(head[:]); err != nil {
		t.Fatal(err)
	}
	hello := make([]byte, binary.BigEndian.Uint16(head[3:]))
	for n := 0; n < len(hello); {
		m, err := far.Read(hello[n:])
		if err != nil {
			t.Fatal(err)
		}
		n += m
	}
	return append(head[:], hello...)
}

// keyShares returns the key_share extension of a ClientHello.
func keyShares(t *testing.T, record []byte) []byte {
	t.Helper()
	const number = 51 // RFC 8446 §4.2
	b := record[5+4+2+32:]
	skip := func(n int) { b = b[n:] }
	skip(1 + int(b[0]))                       // session
	skip(2 + int(binary.BigEndian.Uint16(b))) // cipher suites
	skip(1 + int(b[0]))                       // compression
	for skip(2); len(b) >= 4; {
		kind, n := binary.BigEndian.Uint16(b), int(binary.BigEndian.Uint16(b[2:]))
		if kind == number {
			return b[4:][:n]
		}
		skip(4 + n)
	}
	t.Fatal("a ClientHello without key shares")
	return nil
}

// TestNoSecondClientHello sends a ClientHello that lists known groups and has a key share for
// none of them. It must be rejected: a TLS server would answer with a HelloRetryRequest, and the
// expensive public-key operations after the second ClientHello would be outside of a turn.
func TestNoSecondClientHello(t *testing.T) {
	host, unit := friends(t)
	ln, rejected := listen(t, ServerConfig{Security: unit, HandshakeTimeout: time.Hour})
	hello := firstWords(t, host)
	shares := keyShares(t, hello)
	for b := shares[2:]; len(b) > 4; b = b[4+int(binary.BigEndian.Uint16(b[2:])):] {
		binary.BigEndian.PutUint16(b, 0x7a7a) // an unknown group
	}
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := nc.Write(hello); err != nil {
		t.Fatal(err)
	}
	why := rejected.next(t)
	if !errors.Is(why, ErrNotSplitnic) {
		t.Error(why)
	}
	testenv.Explained(t, why.Error())
	establish(t, ln, host)
}

// TestLongHandshake sends a trusted certificate followed by more others than allowed. The
// connection must be rejected.
func TestLongHandshake(t *testing.T) {
	host, unit := friends(t)
	ln, rejected := listen(t, ServerConfig{Security: unit, HandshakeTimeout: time.Hour})
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	config := newConn(nc, host, roleUnit, time.Now().Add(time.Hour), time.Minute).tlsConfig()
	own := config.Certificates[0].Certificate[0]
	for n := len(own); n < maxHandshake; n += len(own) {
		config.Certificates[0].Certificate = append(config.Certificates[0].Certificate, own)
	}
	_ = tls.Client(nc, config).HandshakeContext(testContext(t)) // the answer may be cut off
	why := rejected.next(t)
	if !errors.Is(why, ErrNotSplitnic) {
		t.Error(why)
	}
	testenv.Explained(t, why.Error())
	establish(t, ln, host)
}

// issued returns a chain of n certificates, each issued by the next one, and the last one by
// issuer. All have one name and keys whose signatures take long to verify.
func issued(t *testing.T, n int, issuer *authority) (chain []*x509.Certificate, leaf *ecdsa.PrivateKey) {
	t.Helper()
	parent, key := issuer.Cert, any(issuer.Key)
	for i := n; i > 0; i-- {
		own, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i)), Subject: pkix.Name{CommonName: "cluster authority"},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			BasicConstraintsValid: true, IsCA: i > 1, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, own.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		chain = append([]*x509.Certificate{cert}, chain...)
		parent, key, leaf = cert, own, own
	}
	return chain, leaf
}

// TestChains verifies certificates with intermediate ones between them and the authority.
func TestChains(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	var trust Trust
	if err := trust.AddCA(a.File); err != nil {
		t.Fatal(err)
	}
	good, _ := issued(t, maxChain, a)
	long, _ := issued(t, maxChain+1, a)
	others, _ := issued(t, maxChain, stranger)
	short, _ := issued(t, 2, a)
	for _, tt := range []struct {
		name   string
		chain  []*x509.Certificate
		issued int // number of certificates issued by the authority
		want   error
	}{
		{"one", good[maxChain-1:], 1, nil},
		{"as many as there may be", good, maxChain, nil},
		{"in another order", []*x509.Certificate{good[0], good[3], good[4], good[1], good[2]}, maxChain, nil},
		{"with the authority's own", append(short[:2:2], a.Cert), 3, nil},
		{"with a stranger's", append(short[:2:2], others[:2]...), 2, nil},
		{"too many", long, maxChain + 1, errLongChain},
		{"a stranger's, of the same names", others, 0, x509.UnknownAuthorityError{}},
		// Anyone can have got these. No other signature must be verified because of them.
		{"a stranger's, with the authority's own", append(others[:4:4], a.Cert), 1, x509.UnknownAuthorityError{}},
		{"a stranger's, with one that the authority has issued", append(others[:4:4], short[1]), 1,
			x509.UnknownAuthorityError{}},
		{"a stranger's, behind those of another", []*x509.Certificate{others[0], short[0], short[1]}, 2,
			x509.UnknownAuthorityError{}},
	} {
		_, err := trust.verify(tt.chain, x509.ExtKeyUsageClientAuth, time.Now())
		var unknown x509.UnknownAuthorityError
		strange := errors.As(tt.want, &unknown)
		if strange && !errors.As(err, &unknown) || !strange && !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
		some, first := trust.issued(tt.chain)
		if len(some) != tt.issued || first == strange {
			t.Errorf("%s: %d issued by the authority, the first one among them: %t", tt.name, len(some), first)
		}
	}
	why := &UntrustedError{Peer: "the host", Addr: "10.0.0.1:7", Reason: errLongChain}
	testenv.Explained(t, "authenticate the host at 10.0.0.1:7: "+why.Error())
}

func TestAsksAgain(t *testing.T) {
	hello := append(bytes.Repeat([]byte{1}, 5+4+2), againRandom...)
	for n := range hello {
		if asksAgain(hello[:n]) {
			t.Errorf("%d bytes are taken for a question", n)
		}
	}
	if !asksAgain(hello) || !asksAgain(append(hello, 1, 2, 3)) {
		t.Error("a question is taken for an answer")
	}
	hello[20] ^= 1
	if asksAgain(hello) {
		t.Error("an answer is taken for a question")
	}
}

package session

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
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

package session

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// incoming is the TCP connection of a server during the handshake. The handshake waits for
// its turn before expensive work. The first answer ends the turn, and a client cannot cause
// expensive work outside of a turn.
type incoming struct {
	net.Conn
	c          *Conn
	handshakes *handshakes
	known      bool                   // from a known machine
	turn       atomic.Pointer[func()] // ends the turn; nil: it has none
	answered   bool
	read       int // bytes read before the client is authenticated
}

func (in *incoming) handshake(ctx context.Context) error {
	err := in.c.tls.HandshakeContext(ctx)
	in.endTurn() // if the handshake has failed before it could answer
	if err != nil {
		in.linger()
	}
	return err
}

// lingerTimeout is for how long data from a peer that was not authenticated is discarded
// before the connection is closed.
const lingerTimeout = time.Second

// linger makes sure that the alert of TLS arrives. Closing a socket with unread data resets
// the connection, which can overtake the alert. There usually is unread data: for the host
// the handshake is over before its certificate is checked, and it has sent its hello.
func (in *incoming) linger() {
	half, ok := in.Conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	in.SetReadDeadline(time.Now().Add(lingerTimeout))
	_, _ = io.CopyN(io.Discard, in.Conn, 2*maxFrame)
}

// takeTurn returns the function that TLS calls when a ClientHello has arrived.
func (in *incoming) takeTurn(
	next func(*tls.ClientHelloInfo) (*tls.Config, error),
) func(*tls.ClientHelloInfo) (*tls.Config, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		end, err := in.handshakes.begin(hello.Context(), in.c, in.known)
		if err != nil {
			return nil, err
		}
		in.turn.Store(&end)
		return next(hello)
	}
}

func (in *incoming) endTurn() {
	if end := in.turn.Swap(nil); end != nil {
		(*end)()
	}
}

// maxHandshake is how many bytes a client may send until it is authenticated: its
// ClientHello and its certificates. The I/O unit parses all certificates before it verifies
// one.
const maxHandshake = 24 << 10

// Write implements net.Conn. It fails if the first answer only requests another ClientHello,
// which is never necessary for a host: the public-key operations after that would be outside
// of a turn.
func (in *incoming) Write(b []byte) (int, error) {
	in.endTurn()
	if !in.answered && asksAgain(b) {
		return 0, fmt.Errorf("%v at %v offers no usable key share: %w", in.c.peerRole, in.c.RemoteAddr(), ErrNotSplitnic)
	}
	in.answered = true
	return in.Conn.Write(b)
}

func (in *incoming) Read(b []byte) (int, error) {
	n, err := in.Conn.Read(b)
	if !in.c.authenticated.Load() {
		if in.read += n; in.read > maxHandshake {
			return 0, fmt.Errorf("%v at %v sends more than %d bytes before authentication: %w", in.c.peerRole,
				in.c.RemoteAddr(), maxHandshake, ErrNotSplitnic)
		}
	}
	return n, err
}

// againRandom is the random of a ServerHello that is a HelloRetryRequest (RFC 8446
// §4.1.3).
var againRandom = []byte{
	0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
	0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
}

// asksAgain reports whether a TLS record is a HelloRetryRequest.
func asksAgain(record []byte) bool {
	const random = 5 + 4 + 2 // behind the headers of record and message, and the version
	return len(record) >= random+len(againRandom) && bytes.Equal(record[random:][:len(againRandom)], againRandom)
}

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

// incoming is the TCP connection of a server during the handshake, which waits for
// its turn before it does anything that takes time. The first answer ends the turn,
// and nobody gets more work out of it than turns are for.
type incoming struct {
	net.Conn
	c          *Conn
	handshakes *handshakes
	known      bool                   // it is from a known machine
	turn       atomic.Pointer[func()] // ends the turn that the handshake has
	answered   bool
	read       int // bytes, before the client is authenticated
}

// handshake is that of TLS.
func (in *incoming) handshake(ctx context.Context) error {
	err := in.c.tls.HandshakeContext(ctx)
	in.endTurn() // of one that failed before it could answer
	if err != nil {
		in.linger()
	}
	return err
}

// lingerTimeout is how long a connection whose peer was not authenticated is
// kept to discard what it sends.
const lingerTimeout = time.Second

// linger lets the alert that TLS has sent arrive. Closing a socket with unread
// data resets the connection, which can overtake the alert; and the host, for
// which the handshake is over before its certificate is looked at, has sent its
// hello by then.
func (in *incoming) linger() {
	half, ok := in.Conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	in.SetReadDeadline(time.Now().Add(lingerTimeout))
	_, _ = io.CopyN(io.Discard, in.Conn, 2*maxFrame)
}

// takeTurn is what TLS calls when a ClientHello has come.
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

// endTurn ends the connection's turn, if it has it.
func (in *incoming) endTurn() {
	if end := in.turn.Swap(nil); end != nil {
		(*end)()
	}
}

// maxHandshake is how much a client may say until it is authenticated: its
// ClientHello and its certificates. The I/O unit parses all certificates before it
// looks at one.
const maxHandshake = 24 << 10

// Write implements net.Conn. A first answer that only asks for another
// ClientHello, which no host makes necessary, is none: the public-key operations
// after that would be in nobody's turn.
func (in *incoming) Write(b []byte) (int, error) {
	in.endTurn()
	if !in.answered && asksAgain(b) {
		return 0, fmt.Errorf("%v at %v offers no usable key share: %w", in.c.peerRole, in.c.RemoteAddr(), ErrNotSplitnic)
	}
	in.answered = true
	return in.Conn.Write(b)
}

// Read implements net.Conn.
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

package session

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
)

// inTurnBefore is what TLS calls when a ClientHello has come, before it does
// anything that takes time: it waits for this connection's turn. The turn ends
// with the answer.
func (c *Conn) inTurnBefore(
	next func(*tls.ClientHelloInfo) (*tls.Config, error),
) func(*tls.ClientHelloInfo) (*tls.Config, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if c.turns != nil {
			if err := c.turns.take(hello.Context(), c); err != nil {
				return nil, err
			}
			c.inTurn.Store(true)
		}
		return next(hello)
	}
}

// endTurn ends the connection's turn, if it has it.
func (c *Conn) endTurn() {
	if c.inTurn.CompareAndSwap(true, false) {
		c.turns.end(c)
	}
}

// answering is the TCP connection of a server during the handshake. Its first
// answer ends its turn, and nobody gets more work out of it than turns are for.
type answering struct {
	net.Conn
	c        *Conn
	answered bool
	read     int // bytes, before the client is authenticated
}

// maxHandshake is how much a client may say until it is authenticated: its
// ClientHello and its certificates. The I/O unit parses all certificates before it
// looks at one.
const maxHandshake = 24 << 10

// Write implements net.Conn. A first answer that only asks for another
// ClientHello, which no host makes necessary, is none: the public-key operations
// after that would be in nobody's turn.
func (a *answering) Write(b []byte) (int, error) {
	a.c.endTurn()
	if !a.answered && asksAgain(b) {
		return 0, fmt.Errorf("%v at %v shows no key for the exchange: %w", a.c.peerRole, a.c.RemoteAddr(), ErrNotSplitnic)
	}
	a.answered = true
	return a.Conn.Write(b)
}

// Read implements net.Conn.
func (a *answering) Read(b []byte) (int, error) {
	n, err := a.Conn.Read(b)
	if !a.c.met.Load() {
		if a.read += n; a.read > maxHandshake {
			return 0, fmt.Errorf("%v at %v says more than %d bytes before it is authenticated: %w", a.c.peerRole,
				a.c.RemoteAddr(), maxHandshake, ErrNotSplitnic)
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

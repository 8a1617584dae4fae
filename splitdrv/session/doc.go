// Package session is the bootstrap between a host and an I/O unit: who are
// you, which protocol, which channels, and at which queue pairs. It runs over
// TCP with mutual TLS 1.3; the host is the TLS client. docs/protocol.md has the
// messages one by one.
//
// The host:
//
//	c, err := session.Dial(ctx, addr, session.ClientConfig{Security: sec})
//	welcome, err := c.Hello(ctx, session.Hello{…})
//	// make queue pairs, connect them to welcome.Channels, post receives
//	err = c.Accept(ctx, session.Accept{…})
//	err = c.Ready(ctx)
//
// The I/O unit:
//
//	ln, err := session.Listen(addr, session.ServerConfig{Security: sec})
//	s, err := ln.Accept(ctx)          // authenticated, s.Hello() is valid
//	// make queue pairs
//	accept, err := s.Welcome(ctx, session.Welcome{…})   // or s.Refuse
//	// connect them to accept.Channels, post receives
//	err = s.Ready(ctx)
//
// Then the connection stays open for the life of the session. Done is closed
// when it ends and Err says why: a [*ByeError] when the peer ended it in good
// order, [ErrPeerGone] when the peer died. No queue-pair number, packet
// sequence number or key leaves a side before the peer is authenticated.
//
// # Files
//
// References between them run down this list:
//
//	listener, incoming, pending, handshakes   connections before their hello
//	server, sessionrate                       the I/O unit's steps
//	renew                                     other certificates for a session
//	client                                    the host's steps
//	established, heartbeat                    a session while it lasts
//	conn                                      what both ends have, and the end
//	direct, drain, messages                   what is said
//	authentication, verdict, security         who both ends are
//	channel, frame, trust, key
//	reason, errors, purpose, role, fingerprint, validity, usertimeout, name
//
// # Concurrency
//
// The steps of the handshake belong to one goroutine. Done, Err, Bye, Close,
// Peer and RemoteAddr may be called from any. A failed step ends the
// connection; Close is still required and idempotent.
package session

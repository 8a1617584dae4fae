// Package session is the bootstrap between a host and an I/O unit: authentication, protocol
// version, features, channels and the addresses of queue pairs. It runs over TCP with mutual
// TLS 1.3; the host is the TLS client. docs/protocol.md describes each message.
//
// The host:
//
//	c, err := session.Dial(ctx, addr, session.ClientConfig{Security: sec})
//	welcome, err := c.Hello(ctx, session.Hello{…})
//	// create queue pairs, connect them to welcome.Channels, post receives
//	err = c.Accept(ctx, session.Accept{…})
//	err = c.Ready(ctx)
//
// The I/O unit:
//
//	ln, err := session.Listen(addr, session.ServerConfig{Security: sec})
//	s, err := ln.Accept(ctx)          // authenticated, s.Hello() is valid
//	// create queue pairs
//	accept, err := s.Welcome(ctx, session.Welcome{…})   // or s.Refuse
//	// connect them to accept.Channels, post receives
//	err = s.Ready(ctx)
//
// Then the connection stays open until the end of the session. Done is closed when it ends,
// and Err returns the reason: a [*ByeError] if the peer has ended it in good order,
// [ErrPeerGone] if the peer has died. No queue-pair number, packet sequence number or key is
// sent before the peer is authenticated.
//
// Package identity has keys, certificates and the trust in peers. Here a Security has those of
// this side, with its connections, which a change ends if they are not trusted any more.
//
// # Files
//
// References between files run down this list:
//
//	listener, incoming, pending, handshakes, known   connections before their hello
//	server                                           steps of the I/O unit
//	renew                                            new certificates for a session
//	client                                           steps of the host
//	established, heartbeat                           an established session
//	conn                                             common part of both ends, and the end
//	direct, messages                                 messages
//	authentication, verdict, security                identities of both ends
//	channel, frame
//	reason, errors
//	names                                            names of package identity, for users
//
// # Concurrency
//
// One goroutine calls the steps of the handshake. Any goroutine may call Done, Err, Bye,
// Close, Peer and RemoteAddr. A failed step ends the connection. Close must still be called,
// and may be called repeatedly.
package session

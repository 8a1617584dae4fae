package session

import (
	"crypto/rand"

	"github.com/splitnic/splitnic/protocol"
)

// platforms are the identifiers of both sides of a session, or 0.
type platforms struct{ own, peer protocol.Platform }

func newRun() (run protocol.Run) {
	rand.Read(run[:]) // never fails
	return run
}

// Platform is the identifier of this side, which peers are told from the next
// connection on: it follows from the key and from the run of the process.
func (s *Security) Platform() protocol.Platform {
	return protocol.PlatformOf(s.Fingerprint(), s.run)
}

// Platform is the identifier of this side in a session that is established, or
// 0 if the peer knows of none.
func (c *Conn) Platform() protocol.Platform { return c.issued.own }

// PeerPlatform is the identifier of the peer, likewise.
func (c *Conn) PeerPlatform() protocol.Platform { return c.issued.peer }

// issue returns what a host is told that has said the run of its process: its
// identifier, and the I/O unit's run.
func (s *Server) issue(run protocol.Run) (protocol.Platform, protocol.Run) {
	if run == (protocol.Run{}) {
		return 0, protocol.Run{}
	}
	s.issued.own, s.issued.peer = s.platform(), protocol.PlatformOf(s.Peer().Fingerprint, run)
	return s.issued.peer, s.security.run
}

// checkIssued checks the identifier that the I/O unit has issued, and notes the I/O
// unit's own.
func (c *Client) checkIssued(w *Welcome) error {
	if w.Platform == 0 {
		return nil
	}
	own := c.platform()
	if w.Platform != own {
		return invalid("platform", w.Platform, "must be %v, which follows from the host's key and run", own)
	}
	c.issued.own, c.issued.peer = own, protocol.PlatformOf(c.Peer().Fingerprint, w.Run)
	return nil
}

// platform is the identifier of this side, as the peer of this connection sees it.
func (c *Conn) platform() protocol.Platform {
	return protocol.PlatformOf(c.showed.Load().fingerprint, c.security.run)
}

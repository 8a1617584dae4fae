package session

import (
	"time"

	"github.com/splitnic/splitnic/internal/ticker"
)

const (
	// heartbeatParts are those of the peer time-out. In each of them a heartbeat is sent,
	// unless somebody vouches for the peer.
	heartbeatParts = 5
	// unneeded is how many parts have one of a host's otherwise, the same ones for all
	// connections: a connection that is broken on its own is found within two peer time-outs.
	// Then the host ends the session, and its I/O unit, which has many hosts and so sends none
	// meanwhile, does not hear it by those other means any more.
	unneeded = heartbeatParts
)

// beats is what the connections of this process have in common.
var beats ticker.Ticker

// Vouch says that the peer's machine is heard by other means than this connection, and
// that it is not any more. Meanwhile a host sends only a few heartbeats, and an I/O unit none. It
// does not wait.
func (c *Conn) Vouch(heard bool) {
	if was := c.heartbeats.vouched.Swap(heard); was && !heard {
		c.beat()
		c.heartbeats.task.Load().Wake()
	}
}

// look sends a heartbeat if it is time. It does not wait, because the other connections do. It
// returns how many parts can be left out: while somebody vouches for the peer all but those in
// which a host sends one. Those before a certificate comes to its end are not.
func (c *Conn) look(t ticker.Tick) (rest int) {
	vouched, turn, now := c.heartbeats.vouched.Load(), t.N%unneeded, c.security.clock()
	if !vouched || c.peerRole == roleUnit && turn == 0 || c.expires(now) {
		c.beat()
	}
	if !vouched || c.expires(now.Add(c.peerTimeout)) {
		return 0
	}
	return int(unneeded - 1 - turn)
}

// beat has a heartbeat sent, unless one is on its way.
func (c *Conn) beat() {
	c.end.Lock() // Close waits for the goroutines only after there is a reason.
	defer c.end.Unlock()
	if c.end.reason != nil || c.heartbeats.going.Swap(true) {
		return
	}
	c.workers.Go(func() {
		defer c.heartbeats.going.Store(false)
		c.heartbeat()
	})
}

// heartbeat sends one to a peer whose certificate has not come to its end.
func (c *Conn) heartbeat() {
	c.expire(c.security.clock())
	var empty [4]byte
	c.writing.Lock()
	_, err := c.stream.Write(empty[:])
	c.writing.Unlock()
	if err != nil {
		// A bye of the peer may still be waiting for the reader, which ends
		// by the same cause.
		c.heartbeats.broken.Do(func() { close(c.broken) })
	}
}

// expire ends the connection when the peer's certificate has come to its end.
// It goes by the clock on the wall, which may have been set since.
func (c *Conn) expire(now time.Time) {
	if c.expires(now) {
		c.security.judge(&c.authentication, now)
	}
}

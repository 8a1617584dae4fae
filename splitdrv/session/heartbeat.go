package session

import (
	"time"

	"github.com/splitnic/splitnic/internal/ticker"
)

const (
	// heartbeatParts is the number of parts of the peer time-out. A heartbeat is sent in each
	// part, unless the peer is heard by other means.
	heartbeatParts = 5
	// unneeded is the number of parts of which a host sends a heartbeat in one while the peer
	// is heard by other means, at the same time for all connections. So a connection that has
	// failed alone is detected within two peer time-outs. Then the host ends the session, and
	// its I/O unit, which sends no heartbeats because it has many hosts, does not hear it any
	// more.
	unneeded = heartbeatParts
)

// beats is the ticker of all connections of this process.
var beats ticker.Ticker

// Vouch reports whether the peer's machine is heard by other means than this connection.
// While it is, a host sends only a few heartbeats, and an I/O unit none. Vouch does not wait.
func (c *Conn) Vouch(heard bool) {
	if was := c.heartbeats.vouched.Swap(heard); was && !heard {
		c.beat()
		c.heartbeats.task.Load().Wake()
	}
}

// look is called in each part, and sends a heartbeat if one is due. It must not wait, because
// all connections share the ticker. It returns how many of the next parts can be left out:
// while the peer is heard by other means, all except those in which a host sends a heartbeat,
// and except those just before a certificate expires.
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

// beat sends a heartbeat in the background, unless one is being sent.
func (c *Conn) beat() {
	c.end.Lock() // Close waits for the goroutines only after there is a reason
	defer c.end.Unlock()
	if c.end.reason != nil || c.heartbeats.going.Swap(true) {
		return
	}
	c.workers.Go(func() {
		defer c.heartbeats.going.Store(false)
		c.heartbeat()
	})
}

// heartbeat sends a heartbeat, after it has checked whether the peer's certificate has
// expired.
func (c *Conn) heartbeat() {
	c.expire(c.security.clock())
	var empty [4]byte
	c.writing.Lock()
	_, err := c.stream.Write(empty[:])
	c.writing.Unlock()
	if err != nil {
		// Do not end the connection here: the reader fails for the same reason, and may
		// find a bye of the peer before.
		c.heartbeats.broken.Do(func() { close(c.broken) })
	}
}

// expire ends the connection if the peer's certificate has expired. It uses the wall clock,
// which may have been set.
func (c *Conn) expire(now time.Time) {
	if c.expires(now) {
		c.security.judge(&c.authentication, now)
	}
}

package session

import (
	"fmt"
	"time"

	"github.com/splitnic/splitnic/internal/limit"
)

// sessionsPerSecond is how many sessions a key may open per second in the long run. For each
// session the kernel creates and removes registered memory, queue pairs and a netdevice,
// which slows down other sessions. max-sessions of the policy limits how many sessions a key
// has; this limits how fast it may open them.
const sessionsPerSecond = 4

// sessionRate limits how fast each key opens sessions. A refused attempt is not charged.
type sessionRate struct {
	burst func(Identity) int // returns how many sessions a peer may open at once
	now   func() time.Time
	keys  *limit.Keyed
}

func newSessionRate(burst func(Identity) int, now func() time.Time) *sessionRate {
	return &sessionRate{burst: burst, now: now, keys: limit.NewKeyed(sessionsPerSecond)}
}

// open charges a session to the authenticated peer of c. If the limit is exceeded, it returns
// an error that wraps ErrTooOften, and the time until another session is permitted.
func (r *sessionRate) open(c *Conn) (wait time.Duration, err error) {
	key, burst := c.LimitKey(), max(r.burst(c.Peer()), 1)
	if wait = r.keys.Take(r.now(), key, 1, burst); wait == 0 {
		return 0, nil
	}
	wait = wait.Truncate(time.Millisecond) + time.Millisecond // not too soon
	whose, todo := "key", "stop the service that reconnects with it repeatedly, or give each host its own key"
	if key.IsMachine() {
		whose, todo = "address", "stop the service that reconnects repeatedly there"
	}
	return wait, fmt.Errorf("%w: %d at once and %d in a second are allowed for one %s, the next one in %v; %s",
		ErrTooOften, burst, sessionsPerSecond, whose, wait, todo)
}

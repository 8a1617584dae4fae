package session

import (
	"fmt"
	"time"

	"github.com/splitnic/splitnic/internal/limit"
)

// sessionsPerSecond is how many sessions a key may open in a second in the long
// run. A session is registered memory, queue pairs and a network interface, all of
// which the kernel makes and takes apart again at the expense of the sessions that
// there are. max-sessions of the policy says how many a key has; this is how fast it
// may change them.
const sessionsPerSecond = 4

// sessionRate bounds how fast each key opens sessions. A refusal costs nothing, so
// that one who tries on and on gets what is due and no less.
type sessionRate struct {
	burst func(Identity) int // how many a peer may open at once
	now   func() time.Time
	keys  *limit.Keyed
}

func newSessionRate(burst func(Identity) int, now func() time.Time) *sessionRate {
	return &sessionRate{burst: burst, now: now, keys: limit.NewKeyed(sessionsPerSecond)}
}

// open takes one for the peer of c, which is authenticated, or returns an error
// that wraps ErrTooOften, and how long it takes until there is one.
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

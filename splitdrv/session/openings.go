package session

import (
	"fmt"
	"sync"
	"time"
)

// What a key may cost. A session is registered memory, queue pairs and a network
// interface, all of which the kernel makes and takes apart again at the expense
// of the sessions that there are. max-sessions of the policy says how many a key
// has; this is how fast it may change them.
const (
	// openingRate is how many sessions a key may open in a second in the long run.
	openingRate = 4
	// maxOpeners bounds the keys that are remembered. One that has not opened a
	// session for a while needs not be.
	maxOpeners = 1024
)

// opener is who opens sessions: a key, or, where there are none, the source of
// its connections.
type opener struct {
	key  Fingerprint
	from source
}

func openerOf(c *Conn) opener {
	if id := c.Peer(); !id.Insecure {
		return opener{key: id.Fingerprint}
	}
	return opener{from: sourceOf(c.RemoteAddr())}
}

// cure says whose the bound is, when there is something again, and what to do.
func (o opener) cure(wait time.Duration) string {
	if o.from.valid() {
		return fmt.Sprintf("one address, the next one in %v; stop what starts over and over there", wait)
	}
	return fmt.Sprintf("one key, the next one in %v; stop what starts over and over with it, or give each host a key of its own", wait)
}

// openings bound how fast each opener opens sessions. A refusal costs nothing, so
// that one who tries on and on gets what is due and no less.
type openings struct {
	burst func(Identity) int // how many somebody may open at once
	now   func() time.Time

	mu sync.Mutex
	by map[opener]*allowance
}

func newOpenings(burst func(Identity) int) *openings {
	return &openings{burst: burst, now: time.Now, by: make(map[opener]*allowance)}
}

// open takes one for the peer of c, which is authenticated, or returns an error
// that wraps ErrTooOften.
func (o *openings) open(c *Conn) error {
	burst := max(o.burst(c.Peer()), 1)
	now := o.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	who := openerOf(c)
	a := o.by[who]
	if a == nil {
		o.makeRoom(now)
		a = new(allowance)
		*a = newAllowance(float64(burst), openingRate, now)
		o.by[who] = a
	}
	a.most = float64(burst) // which a policy can change
	if wait := a.until(now, 1); wait > 0 {
		return fmt.Errorf("%w: %d at once and %d in a second are allowed for %s", ErrTooOften, burst, openingRate,
			who.cure(wait.Round(time.Millisecond)))
	}
	a.spend(now, 1)
	return nil
}

// makeRoom forgets openers until there is room for another: those who have all
// of their allowance, of whom nothing is known that is not known of everybody,
// or else the one who has most of it left. The caller holds o.mu.
func (o *openings) makeRoom(now time.Time) {
	if len(o.by) < maxOpeners {
		return
	}
	var first opener
	least := 0.0
	for who, a := range o.by {
		spent := a.most - a.by(now)
		if spent <= 0 {
			delete(o.by, who)
		} else if least == 0 || spent < least {
			first, least = who, spent
		}
	}
	if len(o.by) >= maxOpeners {
		delete(o.by, first)
	}
}

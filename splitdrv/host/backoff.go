package host

import (
	"math/rand/v2"
	"time"
)

// backoff is the pause between one round of all I/O units and the next. It
// doubles, also after sessions that end soon: one that fails as soon as it is
// established, or is taken over by a second host of the same name, would
// otherwise come again at once for ever.
type backoff struct {
	min, max time.Duration
	next     time.Duration // zero: min
}

// pause returns the pause after a round whose longest session lasted so long,
// zero for none. Jitter of half the pause either way keeps the hosts of an I/O
// unit that restarts from coming all at once.
func (b *backoff) pause(lasted time.Duration) time.Duration {
	if lasted >= b.max || b.next == 0 {
		b.next = b.min
	}
	p := b.next
	b.next = min(2*p, b.max)
	return p/2 + rand.N(p)
}

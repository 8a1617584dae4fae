package host

import (
	"errors"
	"syscall"
	"time"

	"github.com/splitnic/splitnic/splitdrv/session"
)

// restartTime is how long an I/O unit's process may be away, in pauses, until it
// is not thought to be restarting any more.
const restartTime = 5 * time.Second

// backoff is the pause between one round of all I/O units and the next. It
// doubles, also after sessions that end soon: one that fails as soon as it is
// established, or is taken over by a second host of the same name, would
// otherwise come again at once for ever.
type backoff struct {
	min, max time.Duration
	rand     func(n int64) int64
	now      time.Duration // zero: min
	hasty    time.Duration // sum of the pauses of restarting, since there was a session
}

// failed returns the pause after a round that failed.
func (b *backoff) failed() time.Duration {
	p := b.jittered()
	b.now = min(2*b.now, b.max)
	return p
}

// restarting returns the pause after a round in which every I/O unit's machine
// was there and only its process was not, as while that is restarted. To ask
// costs next to nothing then, and each pause may be a gap in the traffic: so for
// restartTime it is the shortest, whatever was before.
func (b *backoff) restarting() time.Duration {
	if b.hasty >= restartTime {
		return b.failed()
	}
	p := b.jitter(b.min)
	b.hasty += p
	return p
}

// restarts reports whether an I/O unit that cannot be reached for that reason may
// be there again at any moment.
func restarts(err error) bool {
	var refused *session.RefusedError
	return errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &refused) && refused.Code == session.CodeShuttingDown
}

// ended returns the pause after a session that lasted so long: none, unless it
// was shorter than a pause would be.
func (b *backoff) ended(lasted time.Duration) time.Duration {
	if lasted >= b.max {
		b.now, b.hasty = b.min, 0
		return 0
	}
	p := b.jittered()
	if lasted >= p {
		b.hasty = 0 // it has been there: what comes is another restart
		return 0
	}
	b.now = min(2*b.now, b.max)
	return p - lasted
}

// jittered is the pause that is due.
func (b *backoff) jittered() time.Duration {
	b.now = max(b.now, b.min)
	return b.jitter(b.now)
}

// jitter is half to all of a pause, so that the hosts of an I/O unit that restarts
// do not come all at once.
func (b *backoff) jitter(p time.Duration) time.Duration {
	return p/2 + time.Duration(b.rand(int64(p/2)+1))
}

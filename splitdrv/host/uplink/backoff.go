package uplink

import "time"

// restartTime is how long an I/O unit's process may be away, in pauses, until it
// is not thought to be restarting any more.
const restartTime = 5 * time.Second

// Backoff is the pause between one round of all I/O units and the next. It
// doubles, also after sessions that end soon: one that fails as soon as it is
// established, or is taken over by a second host of the same name, would
// otherwise come again at once for ever.
type Backoff struct {
	Min, Max time.Duration
	Rand     func(n int64) int64 // a number below n

	now     time.Duration // zero: Min
	restart time.Duration // sum of the pauses of Restarting, since there was a session
	advised bool          // by an I/O unit in this round
	after   time.Duration // the shortest time that one has said
}

// Advise notes for how long an I/O unit has said that it gives no session, after which
// a round may find another answer; 0: it has failed and has not said.
func (b *Backoff) Advise(after time.Duration) {
	if !b.advised || after < b.after {
		b.advised, b.after = true, after
	}
}

// Failed returns the pause after a round that failed: at least as long as all I/O
// units have said. Those who are told the same do not come at once.
func (b *Backoff) Failed() time.Duration {
	p := b.jittered()
	b.now = min(2*b.now, b.Max)
	if b.after > 0 {
		p = max(p, min(b.after, b.Max)+time.Duration(b.Rand(int64(b.after/2)+1)))
	}
	b.advised, b.after = false, 0
	return p
}

// Restarting returns the pause after a round in which every I/O unit's machine
// was there and only its process was not, as while that is restarted. To ask
// costs next to nothing then, and each pause may be a gap in the traffic: so for
// restartTime it is the shortest, whatever was before.
func (b *Backoff) Restarting() time.Duration {
	if b.restart >= restartTime {
		return b.Failed()
	}
	p := b.jitter(b.Min)
	b.restart += p
	return p
}

// Ended returns the pause after a session that lasted so long: none, unless it
// was shorter than a pause would be.
func (b *Backoff) Ended(lasted time.Duration) time.Duration {
	if lasted >= b.Max {
		b.now, b.restart = b.Min, 0
		return 0
	}
	p := b.jittered()
	if lasted >= p {
		b.restart = 0 // it has been there: what comes is another restart
		return 0
	}
	b.now = min(2*b.now, b.Max)
	return p - lasted
}

// jittered is the pause that is due.
func (b *Backoff) jittered() time.Duration {
	b.now = max(b.now, b.Min)
	return b.jitter(b.now)
}

// jitter is half to all of a pause, so that the hosts of an I/O unit that restarts
// do not come all at once.
func (b *Backoff) jitter(p time.Duration) time.Duration {
	return p/2 + time.Duration(b.Rand(int64(p/2)+1))
}

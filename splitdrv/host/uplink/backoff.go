package uplink

import "time"

// restartTime is the sum of pauses after which an I/O unit is no longer assumed to be
// restarting.
const restartTime = 5 * time.Second

// Backoff determines the pause between one round of all I/O units and the next. The pause
// doubles each time, also after sessions that end soon. Otherwise a session that always
// fails immediately, or that a second host of the same name takes over, would be opened
// again without a pause for ever.
type Backoff struct {
	Min, Max time.Duration
	Rand     func(n int64) int64 // returns a random number below n

	now     time.Duration // current pause; zero: Min
	restart time.Duration // sum of the pauses of Restarting, since the last session
	advised bool          // Advise was called in this round
	after   time.Duration // shortest time of Advise in this round
}

// Advise records for how long an I/O unit will refuse sessions, according to its answer; 0:
// it has failed without such an answer.
func (b *Backoff) Advise(after time.Duration) {
	if !b.advised || after < b.after {
		b.advised, b.after = true, after
	}
}

// Failed returns the pause after a round that failed. If all I/O units have said for how
// long they will refuse, it is at least the shortest of these times, with a random addition
// of up to half of it, so that hosts that were told the same do not come at once. Whatever
// the I/O units say, the whole pause is at most Max.
func (b *Backoff) Failed() time.Duration {
	p := b.jittered()
	b.now = min(2*b.now, b.Max)
	if after := min(b.after, 2*(b.Max/3)); after > 0 {
		p = max(p, after+time.Duration(b.Rand(int64(after/2)+1)))
	}
	b.advised, b.after = false, 0
	return p
}

// Restarting returns the pause after a round in which the machine of every I/O unit has
// answered and only its process was missing, as during a restart. An attempt costs little
// then, and each pause can be a gap in the traffic. So for restartTime the pause is the
// shortest one, whatever it was before.
func (b *Backoff) Restarting() time.Duration {
	if b.restart >= restartTime {
		return b.Failed()
	}
	p := b.jitter(b.Min)
	b.restart += p
	return p
}

// Ended returns the pause after a session of the given duration: 0, unless the session was
// shorter than the current pause.
func (b *Backoff) Ended(lasted time.Duration) time.Duration {
	if lasted >= b.Max {
		b.now, b.restart = b.Min, 0
		return 0
	}
	p := b.jittered()
	if lasted >= p {
		b.restart = 0 // there was a session, so the next restart is another one
		return 0
	}
	b.now = min(2*b.now, b.Max)
	return p - lasted
}

// jittered returns the current pause with jitter.
func (b *Backoff) jittered() time.Duration {
	b.now = max(b.now, b.Min)
	return b.jitter(b.now)
}

// jitter returns a random duration between half of p and p, so that not all hosts of an I/O
// unit that restarts come at once.
func (b *Backoff) jitter(p time.Duration) time.Duration {
	return p/2 + time.Duration(b.Rand(int64(p/2)+1))
}

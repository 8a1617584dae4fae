package tap

import (
	"context"
	"time"
)

// pace bounds the share of a processor that Watch needs for reading the state of its device. A
// read lists all devices of the network namespace, so that it takes long in a container with
// thousands of them, and whoever is root there can cause as many changes as he likes.
//
// Reads may take paceBurst at once, and one part of paceParts in the long run. Only one
// goroutine uses it.
type pace struct {
	rest func(ctx context.Context, d time.Duration) // nil: wait; tests replace it

	owed time.Duration // time that reads have taken, and that has not been paid for
	at   time.Time     // time of owed
}

const (
	paceBurst = 200 * time.Millisecond
	paceParts = 10
)

// spent adds the time of a read.
func (p *pace) spent(begun, ended time.Time) {
	p.pay(ended)
	p.owed += ended.Sub(begun)
}

// pay lowers what is owed by the part of the time that has passed.
func (p *pace) pay(now time.Time) {
	p.owed = max(p.owed-now.Sub(p.at)/paceParts, 0)
	p.at = now
}

// wait waits until another read is due, or ctx is done. Announcements that arrive meanwhile
// stay in the subscription.
func (p *pace) wait(ctx context.Context, now time.Time) {
	p.pay(now)
	if p.owed <= paceBurst {
		return
	}
	rest := p.rest
	if rest == nil {
		rest = sleep
	}
	rest(ctx, (p.owed-paceBurst)*paceParts)
}

// sleep waits for a duration, or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

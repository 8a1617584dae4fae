package tap

import (
	"context"
	"testing"
	"time"
)

// TestPace has changes that never end, each of which is answered by a read that takes long. The
// reads must take no more than their share of the time, and must go on.
func TestPace(t *testing.T) {
	now := time.Unix(1000, 0)
	begun, reading, reads := now, time.Duration(0), 0
	var p pace
	p.rest = func(_ context.Context, d time.Duration) { now = now.Add(d) }
	for now.Sub(begun) < time.Minute {
		p.wait(t.Context(), now)
		took := 190 * time.Millisecond
		p.spent(now, now.Add(took))
		now, reading, reads = now.Add(took), reading+took, reads+1
	}
	took := now.Sub(begun)
	if most := took/paceParts + paceBurst + 190*time.Millisecond; reading > most {
		t.Errorf("reading took %v of %v, at most %v", reading, took, most)
	}
	if reads < 25 {
		t.Errorf("%d reads in %v", reads, took)
	}
	// A read that takes little time waits for nothing.
	p = pace{rest: func(_ context.Context, d time.Duration) { t.Errorf("a read waits for %v", d) }}
	for range 1000 {
		p.wait(t.Context(), now)
		p.spent(now, now.Add(100*time.Microsecond))
		now = now.Add(time.Millisecond)
	}
}

// TestPaceEnds expects that a pause ends with its context.
func TestPaceEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := pace{owed: 1 << 50, at: time.Unix(1000, 0)}
	p.wait(ctx, p.at)
}

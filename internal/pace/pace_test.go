package pace

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	var p Pace
	now := time.Unix(1000, 0)
	lines := func(tries int) (n int, unsaid uint64) {
		for range tries {
			ok, u := p.Allow(now)
			if ok {
				n++
			}
			unsaid += u
		}
		return n, unsaid
	}
	if n, _ := lines(1000); n != Burst {
		t.Errorf("%d lines at once, want %d", n, Burst)
	}
	now = now.Add(3*Interval + Interval/2)
	if n, unsaid := lines(1000); n != 3 || unsaid != 1000-Burst {
		t.Errorf("%d lines after a while, %d were left out before; want 3, %d", n, unsaid, 1000-Burst)
	}
	now = now.Add(time.Hour)
	if n, unsaid := lines(1000); n != Burst || unsaid != 997 {
		t.Errorf("%d lines after an hour, %d were left out before; want %d, 997", n, unsaid, Burst)
	}
}

package limit

import (
	"testing"
	"time"
)

func TestLog(t *testing.T) {
	var b Log
	now := time.Unix(1000, 0)
	lines := func(tries int) (n int, omitted uint64) {
		for range tries {
			ok, o := b.allow(now)
			if ok {
				n++
			}
			omitted += o
		}
		return n, omitted
	}
	if n, _ := lines(1000); n != logBurst {
		t.Errorf("%d lines at once, want %d", n, logBurst)
	}
	now = now.Add(3500 * time.Millisecond / logRate)
	if n, omitted := lines(1000); n != 3 || omitted != 1000-logBurst {
		t.Errorf("%d lines after a while, %d were left out before; want 3, %d", n, omitted, 1000-logBurst)
	}
	now = now.Add(time.Hour)
	if n, omitted := lines(1000); n != logBurst || omitted != 997 {
		t.Errorf("%d lines after an hour, %d were left out before; want %d, 997", n, omitted, logBurst)
	}
}

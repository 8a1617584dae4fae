package host

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	b := backoff{min: time.Second, max: 5 * time.Second}
	for i, c := range []struct{ lasted, want time.Duration }{
		{0, time.Second}, {0, 2 * time.Second},
		{4 * time.Second, 4 * time.Second}, // a session that ended soon changes nothing
		{0, 5 * time.Second}, {0, 5 * time.Second},
		{time.Hour, time.Second}, {0, 2 * time.Second},
		{5 * time.Second, time.Second},
	} {
		if got := b.pause(c.lasted); got < c.want/2 || got >= c.want/2+c.want {
			t.Errorf("pause %d: %v, want about %v", i, got, c.want)
		}
	}
}

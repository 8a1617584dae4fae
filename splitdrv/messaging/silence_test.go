package messaging

import (
	"testing"
	"time"
)

func TestSilence(t *testing.T) {
	s := silence{interval: time.Second}
	for i, c := range []struct {
		heard uint64
		want  time.Duration
	}{
		{0, time.Second}, {0, 2 * time.Second}, {1, 0}, {1, time.Second}, {9, 0}, {10, 0}, {10, time.Second}, {10, 2 * time.Second},
	} {
		if got := s.tick(c.heard); got != c.want {
			t.Errorf("tick %d: %v, want %v", i, got, c.want)
		}
	}
}

package guard

import (
	"slices"
	"testing"
)

// TestSamplesTaken checks that samples are taken once, and not lost when there are more hosts.
func TestSamplesTaken(t *testing.T) {
	s := NewSamples(0)
	s.Fit(4)
	(*s.to.Load())[2].Add(5)
	s.Fit(3)
	if got := []uint64{s.Take(9), s.Take(2), s.Take(2)}; !slices.Equal(got, []uint64{0, 5, 0}) {
		t.Errorf("%d packets were taken", got)
	}
}

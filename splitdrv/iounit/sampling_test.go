package iounit

import (
	"slices"
	"testing"
)

// TestSamplesTaken checks that samples are taken once, and not lost when there are more hosts.
func TestSamplesTaken(t *testing.T) {
	s := newSamples(0)
	s.fit(4)
	(*s.to.Load())[2].Add(5)
	s.fit(3)
	if got := []uint64{s.take(9), s.take(2), s.take(2)}; !slices.Equal(got, []uint64{0, 5, 0}) {
		t.Errorf("%d packets were taken", got)
	}
}

//go:build !race

// The race detector causes allocations that the program does not have.

package capture_test

import (
	"testing"

	"github.com/splitnic/splitnic/splitdrv/capture"
)

// TestShownFramesDoNotAllocate expects no allocation in a data channel, with and without a capture.
func TestShownFramesDoNotAllocate(t *testing.T) {
	var p capture.Point
	path := p.Path("a", "")
	out, in := reads(frame(60, 1), super(1500, 2)), writes(frame(60, 3))
	show := func() {
		path.Sent(out)
		path.Received(in)
	}
	if n := testing.AllocsPerRun(100, show); n != 0 {
		t.Errorf("%v allocations while nobody captures", n)
	}
	c := started(t, &p, capture.Config{Buffer: capture.MinBuffer, Filter: isA})
	show()
	if n := testing.AllocsPerRun(100, show); n != 0 {
		t.Errorf("%v allocations with a filter", n)
	}
	c.End()
	c = started(t, &p, capture.Config{Buffer: capture.MinBuffer})
	show()
	if n := testing.AllocsPerRun(100, show); n != 0 {
		t.Errorf("%v allocations in a capture", n)
	}
	if s := c.Status(); s.Frames == s.Dropped || s.Dropped == 0 {
		t.Errorf("%+v: some frames should have found room, and some none", s)
	}
}

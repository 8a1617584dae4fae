//go:build !asan

// The address sanitizer allocates by itself.

package verbs

import (
	"context"
	"testing"
)

// Waiting again and again with one context allocates nothing.
func TestPollFDAllocs(t *testing.T) {
	p, event := pipeFD(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if n := testing.AllocsPerRun(100, func() {
		event()
		if err := p.wait(ctx); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per wait", n)
	}
}

//go:build !asan

// The address sanitizer causes allocations of its own.

package verbs

import (
	"context"
	"testing"
)

// TestPollFDAllocs expects no allocation in repeated waits with the same context.
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

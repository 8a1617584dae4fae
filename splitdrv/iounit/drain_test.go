package iounit

import (
	"log/slog"
	"testing"
)

// TestDrainAgain drains an I/O unit twice. Once it accepts hosts again nothing may be left of the first
// time, so that its hosts are asked again.
func TestDrainAgain(t *testing.T) {
	a := &attachment{leaving: leaving{known: true}}
	r := &roster{log: slog.New(slog.DiscardHandler), hosts: map[string]*attachment{"a": a}}
	for round := range 2 {
		r.draining = &draining{over: make(chan struct{})}
		r.mu.Lock()
		r.askNext()
		r.mu.Unlock()
		if a.leaving.why != cannotBeAsked {
			t.Errorf("round %d: the host stays because %q", round, a.leaving.why)
		}
		if r.Undrain(); a.leaving != (leaving{known: true}) {
			t.Errorf("round %d: left over: %+v", round, a.leaving)
		}
	}
}

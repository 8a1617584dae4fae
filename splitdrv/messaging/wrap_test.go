package messaging_test

import (
	"testing"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// TestSequenceWraps sends frames, inline and not, while the numbers of the writes, which begin shortly
// before that, wrap around.
func TestSequenceWraps(t *testing.T) {
	n := fabrictest.New()
	cfg := patient(messaging.Config{SendSlots: 12, Batch: 4, SignalEvery: 7})
	a, b := newEndpoint(t, n, "a", cfg), newEndpoint(t, n, "b", cfg)
	connect(t, a, b)
	for _, h := range []*endpoint{a, b} {
		if err := h.conn.Start(h.ports); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream(deadline(t), a.wires[0], b.wires[0], randomSizes(1, 1000), 1500); err != nil {
		t.Error(err)
	}
	settled(t, a, b)
}

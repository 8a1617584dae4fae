//go:build !race

// The race detector allocates where the program does not.

package bench

import (
	"errors"
	"testing"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// TestPortsDoNotAllocate expects the ports to make no allocations.
func TestPortsDoNotAllocate(t *testing.T) {
	for _, poll := range []bool{false, true} {
		s := Spec{Kind: BW, Mode: protocol.ModeImm, Size: 64, Queues: 1, Iterations: maxMessages, Poll: poll}
		slot, other := make([]byte, 1<<16), make([]byte, 1<<16)
		reads := []vnet.ReadOp{{Slot: slot}, {Slot: other}}
		writes := make([]vnet.WriteOp, 2)
		from, to := newTestFlood(t, &s, true), newTestFlood(t, &s, false)
		flood := func() {
			f, err := from.ReadFrame(slot)
			if err != nil || to.write(f, nil) != nil {
				t.Fatal(err)
			}
			if from.ReadFrames(reads) != 2 {
				t.Fatal(reads)
			}
			for i := range reads {
				writes[i] = vnet.WriteOp{Head: reads[i].Frame}
			}
			if to.WriteFrames(writes) != 2 || writes[0].Err != nil || writes[1].Err != nil {
				t.Fatal(writes)
			}
			if _, err := to.ReadFrame(slot); !errors.Is(err, errAgain) {
				t.Fatal(err)
			}
		}
		flood()
		if got := testing.AllocsPerRun(500, flood); got != 0 {
			t.Errorf("poll %t: %v allocations for three frames", poll, got)
		}
		if to.got.Load() < 1500 {
			t.Errorf("%d frames counted", to.got.Load())
		}

		ping := newPinger(&s, newTestGate(t, &s))
		ping.release()
		pong := newPonger(newTestGate(t, &s))
		pong.release()
		round := func() {
			f, err := ping.ReadFrame(slot)
			if err != nil || pong.WriteFrame(f) != nil {
				t.Fatal(err)
			}
			if n := pong.ReadFrames(reads); n != 2 || !errors.Is(reads[1].Err, errAgain) {
				t.Fatal(n, reads)
			}
			writes[0] = vnet.WriteOp{Head: reads[0].Frame}
			if ping.WriteFrames(writes[:1]) != 1 || writes[0].Err != nil {
				t.Fatal(writes[0].Err)
			}
		}
		round()
		round()
		if got := testing.AllocsPerRun(500, round); got != 0 {
			t.Errorf("poll %t: %v allocations for a round trip", poll, got)
		}
		if ping.times.TotalCount() < 500 {
			t.Errorf("%d round trips recorded", ping.times.TotalCount())
		}
	}
}

package bufpool

import "testing"

// TestStepDoesNotAllocate takes a pool through its end and expects no allocation: Step appends
// actions to the caller's slice.
func TestStepDoesNotAllocate(t *testing.T) {
	w := &walk{t: t, pools: NewPools(config())}
	l := w.asked()
	out := make([]Action, 0, 4)
	refs := []uint32{l.Ref | giveBack}
	step := func(e Event) {
		var err error
		if out, err = w.pools.Step(&e, out[:0]); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		w.pools.local[l.Ref], l.state = l, localOffered
		step(Event{Kind: Flush, Refs: refs})
		step(Event{Did: Drain, Local: l})
		step(Event{Did: Deregister, Local: l})
		step(Event{Did: Reply})
	}); n != 0 {
		t.Errorf("%v allocations for the end of a pool", n)
	}
}

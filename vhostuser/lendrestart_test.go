package vhostuser

import "testing"

// TestLentBeforeRestart returns a loan after its ring was started again, and the same chain was lent
// again. Only the later loan may return the chain, which the device still reads.
func TestLentBeforeRestart(t *testing.T) {
	for name, feats := range kinds {
		t.Run(name, func(t *testing.T) {
			g := newGuest(t, feats, 1, 1)
			to, ops := newBorrower(g, 1), readOps(1)
			g.add([]buffer{g.alloc(lentFrom)}, false)
			if n := to.read(t, g, ops, false); n != 1 || len(to.loans) != 1 {
				t.Fatalf("%d frames are read, and %d lent", n, len(to.loans))
			}
			m := g.v.ring.base().mem
			g.v.mu.Lock()
			g.v.stop()
			g.v.start = 1 << 15 // the chain was not returned
			err := g.v.begin(m, feats)
			g.v.mu.Unlock()
			if err != nil {
				t.Fatal(err)
			}
			if n := to.read(t, g, ops, false); n != 1 || len(to.loans) != 2 {
				t.Fatalf("%d frames are read after the start, %d lent in all", n, len(to.loans))
			}
			g.v.giveBack(to.loans[:1])
			if n, ok := g.used(); ok {
				t.Errorf("a chain of which the device reads is returned, with %d bytes", n)
			}
			g.v.giveBack(to.loans[1:])
			if _, ok := g.used(); !ok {
				t.Error("the chain is not returned")
			}
		})
	}
}

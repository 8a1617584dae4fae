package vhostuser

import (
	"fmt"
	"testing"
)

// ask makes the driver ask for a call when the device returns its chain number n, of chains of one
// descriptor each, counted from the beginning.
func (g *guest) ask(n int) {
	if g.feats.has(featPacked) {
		c := cursor{uint16(n % g.size), n/g.size%2 == 0}
		store32At(g, availAt, eventDesc<<16|uint32(c.word()))
		return
	}
	g.put16(availAt+ringHead+availElement*g.size, uint16(n))
}

// interrupts makes a driver without event index ask for calls, or for none.
func (g *guest) interrupts(on bool) {
	switch {
	case !g.feats.has(featPacked) && on:
		g.put16(availAt, 0)
	case !g.feats.has(featPacked):
		g.put16(availAt, noInterrupt)
	case on:
		store32At(g, availAt, eventEnable<<16)
	default:
		store32At(g, availAt, eventDisable<<16)
	}
}

// turn makes n chains available, has the driver ask, and the device take and return the chains together.
// It reports whether the driver is called.
func (g *guest) turn(n int, ask func()) (call bool) {
	g.t.Helper()
	r := g.v.ring
	for range n {
		g.add([]buffer{g.alloc(100)}, false)
		if there, err := r.next(); !there || err != nil {
			g.t.Fatal("a chain is not taken: ", err)
		}
		c := &r.base().chain
		r.put(used{id: c.id, slots: c.slots})
	}
	ask() // now, because the driver of a split ring stores its flag with each chain
	call = r.publish()
	for range n {
		if _, ok := g.used(); !ok {
			g.t.Fatal("a chain is not returned")
		}
	}
	return call
}

// TestCalls expects calls of a driver with event index exactly when the chain is returned for which it
// asks, also in the next rounds of the ring and when several chains are returned at a time. A driver
// without event index is called each time, or never.
func TestCalls(t *testing.T) {
	for name, feats := range kinds {
		for n := 1; n <= 3; n++ {
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				g := newGuest(t, feats, 1, 1)
				for done, i := 0, 0; done < 4*ringSize; i++ {
					// Before the chains that are returned, one of them, or behind them.
					at, want := max(done-1+i%(n+2), 0), i%2 == 0
					ask := func() { g.interrupts(want) }
					if feats.has(featEventIdx) {
						want = at >= done && at < done+n
						ask = func() { g.ask(at) }
					}
					if call := g.turn(n, ask); call != want {
						t.Fatalf("chains %d to %d are returned: the driver is called: %t, and asks for that at %d", done,
							done+n-1, call, at)
					}
					done += n
				}
			})
		}
	}
}

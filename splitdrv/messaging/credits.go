package messaging

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/internal/epoll"
)

// credits are the peer's pools that a sender may write to. The sender's goroutine
// takes elements; the control handler returns them. Pools come and go with the
// pools' lock held.
type credits struct {
	remote  atomic.Pointer[[]*bufpool.Remote] // smallest elements first; replaced as a whole
	waiting atomic.Bool                       // the sender sleeps for credits, or for the acknowledgement of an indication
	wake    *epoll.Event
	short   atomic.Int64 // bytes of the element that was lacking last, for the pool manager; 0 none
}

// available is how many elements there are to write to.
func (c *credits) available() int {
	n := 0
	for _, g := range *c.remote.Load() {
		n += g.Available()
	}
	return n
}

// fit reports whether there is an element of at least n bytes.
func (c *credits) fit(n int) bool {
	for _, g := range *c.remote.Load() {
		if g.ElementSize() >= n && !g.Empty() {
			return true
		}
	}
	return false
}

// take takes an element for a transfer of at least n bytes: of the smallest pool
// that holds those wanted, or of the largest that has one. There may be none any
// more where there was one: the peer can take pools back at any time.
func (c *credits) take(n, wanted int) (*bufpool.Remote, uint16, bool) {
	var best *bufpool.Remote
	for _, g := range *c.remote.Load() {
		if g.ElementSize() < n || g.Empty() {
			continue
		}
		best = g
		if g.ElementSize() >= wanted {
			break
		}
	}
	if best == nil {
		return nil, 0, false
	}
	elem, ok := best.Take()
	return best, elem, ok
}

// largest is the size of the largest elements, 0 if there are no pools.
func (c *credits) largest() int {
	pools := *c.remote.Load()
	if len(pools) == 0 {
		return 0
	}
	return pools[len(pools)-1].ElementSize()
}

// fitsNowhere reports whether no pool of the peer's has elements of n bytes.
func (c *credits) fitsNowhere(n int) bool { return c.largest() > 0 && c.largest() < n }

// add adds a pool to those that the sender uses.
func (c *credits) add(r *bufpool.Remote) {
	pools := append(slices.Clone(*c.remote.Load()), r)
	slices.SortStableFunc(pools, func(a, b *bufpool.Remote) int { return cmp.Compare(a.ElementSize(), b.ElementSize()) })
	c.remote.Store(&pools)
}

// remove takes a pool from those that the sender uses. It may be using it at
// this very moment.
func (c *credits) remove(r *bufpool.Remote) {
	pools := slices.DeleteFunc(slices.Clone(*c.remote.Load()), func(o *bufpool.Remote) bool { return o == r })
	c.remote.Store(&pools)
}

// came tells a sender that sleeps for credits, or acknowledgements, that some have come.
func (c *credits) came() {
	if c.waiting.Load() {
		c.wake.Set()
	}
}

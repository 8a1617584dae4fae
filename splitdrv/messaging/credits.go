package messaging

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/internal/epoll"
)

// credits has the remote pools that a sender may write to. The sender's goroutine takes
// elements; the control handler returns them. Pools are added and removed with the pool
// manager's lock held.
type credits struct {
	remote  atomic.Pointer[[]*bufpool.Remote] // smallest elements first; replaced as a whole
	waiting atomic.Bool                       // the sender sleeps until credits or acknowledgements of indications arrive
	wake    *epoll.Event
	short   atomic.Int64 // size of the element that was missing last, for the pool manager; 0: none
}

// available returns the number of credits.
func (c *credits) available() int {
	n := 0
	for _, g := range *c.remote.Load() {
		n += g.Available()
	}
	return n
}

// fit reports whether there is a credit for an element of at least n bytes.
func (c *credits) fit(n int) bool {
	for _, g := range *c.remote.Load() {
		if g.ElementSize() >= n && !g.Empty() {
			return true
		}
	}
	return false
}

// take uses up a credit for a transfer of at least n bytes, and preferably of wanted
// bytes: it takes an element of the smallest pool whose elements hold wanted bytes, or
// else of the largest that has a credit. ok can be false even after fit was true, because
// the peer can take pools back at any time.
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

// largest returns the size of the largest elements, or 0 if there are no pools.
func (c *credits) largest() int {
	pools := *c.remote.Load()
	if len(pools) == 0 {
		return 0
	}
	return pools[len(pools)-1].ElementSize()
}

// fitsNowhere reports whether there are pools and none has elements of n bytes.
func (c *credits) fitsNowhere(n int) bool { return c.largest() > 0 && c.largest() < n }

// add adds a pool.
func (c *credits) add(r *bufpool.Remote) {
	pools := append(slices.Clone(*c.remote.Load()), r)
	slices.SortStableFunc(pools, func(a, b *bufpool.Remote) int { return cmp.Compare(a.ElementSize(), b.ElementSize()) })
	c.remote.Store(&pools)
}

// remove removes a pool. The sender may still be using it, until its current step ends.
func (c *credits) remove(r *bufpool.Remote) {
	pools := slices.DeleteFunc(slices.Clone(*c.remote.Load()), func(o *bufpool.Remote) bool { return o == r })
	c.remote.Store(&pools)
}

// came wakes a sender that sleeps until credits or acknowledgements arrive.
func (c *credits) came() {
	if c.waiting.Load() {
		c.wake.Set()
	}
}

package pools

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
)

// Credits has the remote pools that a sender may write to. The sender's goroutine takes
// elements; the control handler returns them. Pools are added and removed with the pool
// manager's lock held.
type Credits struct {
	remote  atomic.Pointer[[]*bufpool.Remote] // smallest elements first; replaced as a whole
	event   *epoll.Event                      // wakes the sender
	Waiting atomic.Bool                       // the sender sleeps until credits or acknowledgements of indications arrive
	Lacking atomic.Int64                      // size of the element that was missing last, for the pool manager; 0: none
}

func (c *Credits) init(event *epoll.Event) {
	c.event = event
	c.remote.Store(new([]*bufpool.Remote))
}

// Pools returns the pools, those with the smallest elements first. The slice does not change.
func (c *Credits) Pools() []*bufpool.Remote { return *c.remote.Load() }

// Available returns the number of credits.
func (c *Credits) Available() int {
	n := 0
	for _, g := range c.Pools() {
		n += g.Available()
	}
	return n
}

// Fit reports whether there is a credit for an element of at least n bytes.
func (c *Credits) Fit(n int) bool {
	for _, g := range c.Pools() {
		if g.ElementSize() >= n && !g.Empty() {
			return true
		}
	}
	return false
}

// Take uses up a credit for a transfer of at least n bytes, and preferably of wanted
// bytes: it takes an element of the smallest pool whose elements hold wanted bytes, or
// else of the largest that has a credit. ok can be false even after fit was true, because
// the peer can take pools back at any time.
func (c *Credits) Take(n, wanted int) (*bufpool.Remote, uint16, bool) {
	var best *bufpool.Remote
	for _, g := range c.Pools() {
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

// Largest returns the size of the largest elements, or 0 if there are no pools.
func (c *Credits) Largest() int {
	pools := c.Pools()
	if len(pools) == 0 {
		return 0
	}
	return pools[len(pools)-1].ElementSize()
}

// FitsNowhere reports whether there are pools and none has elements of n bytes.
func (c *Credits) FitsNowhere(n int) bool { return c.Largest() > 0 && c.Largest() < n }

func (c *Credits) add(r *bufpool.Remote) {
	pools := append(slices.Clone(c.Pools()), r)
	slices.SortStableFunc(pools, func(a, b *bufpool.Remote) int { return cmp.Compare(a.ElementSize(), b.ElementSize()) })
	c.remote.Store(&pools)
}

// remove removes a pool. The sender may still be using it, until its current step ends.
func (c *Credits) remove(r *bufpool.Remote) {
	pools := slices.DeleteFunc(slices.Clone(c.Pools()), func(o *bufpool.Remote) bool { return o == r })
	c.remote.Store(&pools)
}

// Wake wakes a sender that sleeps until credits or acknowledgements arrive.
func (c *Credits) Wake() {
	if c.Waiting.Load() {
		c.event.Set()
	}
}

// Channel has what the pool manager shares with the sender and the receiver of a data channel. They are
// separate structs, because different processors write to them.
type Channel struct {
	Sender   *Sending
	Receiver *Receiving

	number   int
	first    []Config // first pools
	noCredit uint64   // value of TxNoCredit at the last tick
	held     uint64   // value of RxThrottled when the peer last asked for a pool
	asleep   int      // ticks in a row at which the sender slept without credit
}

// Sending is what a pool manager shares with a sender.
type Sending struct {
	Queue    core.Queue[bufpool.Action] // actions for the sender
	Credits                             // the remote pools of the channel
	Slots    *Slots
	Sequence atomic.Uint64 // send modes: sequence number of the next message; the sender writes it
	Count    core.TxCount
}

// Receiving is what a pool manager shares with a receiver.
type Receiving struct {
	Queue core.Queue[core.RxEvent] // actions for the receiver
	Count core.RxCount
}

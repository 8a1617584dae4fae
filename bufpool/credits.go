package bufpool

import (
	"fmt"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/protocol"
)

// Credits are the initiator's side of a pool: the peer's elements that this side
// may write. One goroutine, the sender, calls Take; another one, which handles
// the peer's updates, calls Return. Ledger may be called from anywhere.
type Credits struct {
	addr  uint64
	size  int
	rkey  uint32
	keys  []uint32 // by element, of its next use; nil if rkey is for all
	order Order
	out   []atomic.Bool
	free  []uint16 // the sender's own, a ring
	first int      // index in free of the one freed longest ago
	nFree int

	used  atomic.Bool // since the last look
	nOut  atomic.Int32
	fresh atomic.Bool // back has something; read without the lock on every frame
	mu    sync.Mutex
	back  []uint16 // returned by the peer, not yet fetched by the sender
}

// Order says which of several available elements is taken.
type Order uint8

const (
	// LatestFirst takes the one that was returned last: it is the likeliest to
	// be in the target's cache.
	LatestFirst Order = iota
	// InOrder takes elements in the order in which they were returned, at first
	// from 0 on: that of receives on a receive queue.
	InOrder
)

// renew makes the credits of n elements of size bytes at the peer's address addr, written
// with the key rkey, in the memory of c as far as that is enough: nobody may take or return
// elements of c any more. All are available. The caller has checked that the elements do not
// wrap around the address space.
func (c *Credits) renew(addr uint64, rkey uint32, size, n int, order Order) *Credits {
	r := &Credits{addr: addr, rkey: rkey, size: size, order: order, nFree: n}
	if n > cap(c.out) {
		r.out, r.free, r.back = make([]atomic.Bool, n), make([]uint16, n), make([]uint16, 0, n)
	} else {
		r.out, r.free, r.back = c.out[:n], c.free[:n], c.back[:0]
	}
	for i := range r.out {
		r.out[i].Store(false)
		if r.free[i] = uint16(i); order == LatestFirst {
			r.free[i] = uint16(n - 1 - i)
		}
	}
	return r
}

// Len is the number of elements.
func (c *Credits) Len() int { return len(c.out) }

// ElementSize is the size of each element in bytes.
func (c *Credits) ElementSize() int { return c.size }

// RKey is the key to write the elements with, if it is the same for all.
func (c *Credits) RKey() uint32 { return c.rkey }

// setKey gives all elements their key, if it was not known at first. Before the first
// Take.
func (c *Credits) setKey(key uint32) { c.rkey = key }

// setKeys gives each element a key of its own, which it has until it is
// returned; protocol.NextKey follows. Before the first Take; keys are the pool's
// from now on.
func (c *Credits) setKeys(keys []uint32) { c.keys = keys }

// Key is the key to write an element with that was taken. For the one who takes.
func (c *Credits) Key(elem uint16) uint32 {
	if c.keys == nil {
		return c.rkey
	}
	return c.keys[elem]
}

// Address is where an element begins in the peer's memory.
func (c *Credits) Address(elem uint16) uint64 { return c.addr + uint64(elem)*uint64(c.size) }

// Take uses up one credit and returns its element.
func (c *Credits) Take() (elem uint16, ok bool) {
	if c.fresh.Load() {
		c.fetch()
	}
	if c.nFree == 0 {
		return 0, false
	}
	c.nFree--
	if c.order == InOrder {
		elem = c.free[c.first]
		c.first = c.index(1)
	} else {
		elem = c.free[c.index(c.nFree)]
	}
	c.out[elem].Store(true)
	c.nOut.Add(1)
	if !c.used.Load() {
		c.used.Store(true)
	}
	return elem, true
}

// Used reports whether an element was taken since the last call. It may be called
// from any one goroutine.
func (c *Credits) Used() bool { return c.used.Swap(false) }

// Available is how many elements can be taken. For the one who takes.
func (c *Credits) Available() int {
	if c.fresh.Load() {
		c.fetch()
	}
	return c.nFree
}

// index is where the element is that was freed i elements after the first.
func (c *Credits) index(i int) int {
	if i += c.first; i >= len(c.free) {
		i -= len(c.free)
	}
	return i
}

// Empty reports whether there is no credit.
func (c *Credits) Empty() bool { return c.nFree == 0 && !c.fresh.Load() }

func (c *Credits) fetch() {
	c.mu.Lock()
	c.fresh.Store(false)
	for _, e := range c.back {
		c.free[c.index(c.nFree)] = e
		c.nFree++
	}
	c.back = c.back[:0]
	c.mu.Unlock()
}

// Return gives back an element that the peer names in an update. An element
// that is not out is refused.
func (c *Credits) Return(elem uint32) error {
	if elem >= uint32(len(c.out)) {
		return fmt.Errorf("%w: element %d of %d", ErrNotOut, elem, len(c.out))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.out[elem].CompareAndSwap(true, false) {
		return fmt.Errorf("%w: element %d", ErrNotOut, elem)
	}
	c.nOut.Add(-1)
	if c.keys != nil {
		c.keys[elem] = protocol.NextKey(c.keys[elem])
	}
	c.back = append(c.back, uint16(elem))
	c.fresh.Store(true)
	return nil
}

// Outstanding lists the elements that are out. Those that change meanwhile may or
// may not be among them.
func (c *Credits) Outstanding() iter.Seq[uint16] {
	return func(yield func(uint16) bool) {
		for i := range c.out {
			if c.out[i].Load() && !yield(uint16(i)) {
				return
			}
		}
	}
}

// Ledger counts the elements by state.
func (c *Credits) Ledger() Ledger {
	o := int(c.nOut.Load())
	return Ledger{Elements: len(c.out), Available: len(c.out) - o, Out: o}
}

package bufpool

import (
	"fmt"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/protocol"
)

// Credits is the initiator's side of a pool: it has the remote elements that this side may
// write. One goroutine, the sender, calls Take. Another one, the control handler, calls
// Return. Any goroutine may call Ledger.
type Credits struct {
	addr  uint64
	size  int
	rkey  uint32   // written before the first Take, as keys
	keys  []uint32 // key of each element for its next use, protocol.NextKey after each; nil if all have rkey
	order Order
	out   []atomic.Bool
	free  []uint16 // available elements, a ring; used by the sender only
	first int      // index in free of the element freed longest ago
	nFree int

	used  atomic.Bool // an element was taken since the last call of Used
	nOut  atomic.Int32
	fresh atomic.Bool // back is not empty; read without the lock for every frame
	mu    sync.Mutex
	back  []uint16 // elements returned by the peer and not yet added to free
}

// Order determines which of several available elements is taken.
type Order uint8

const (
	// LatestFirst takes the element that was returned last, which is the most likely one to
	// be in the target's cache.
	LatestFirst Order = iota
	// InOrder takes elements in the order in which they were returned, and first from 0 on,
	// like receives of a receive queue.
	InOrder
)

// renew returns credits for n elements of size bytes at the remote address addr with key
// rkey, all available. It uses the memory of c if that is large enough; c must not be used
// any more. The caller has checked that the elements do not wrap around the address space.
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

// Len returns the number of elements.
func (c *Credits) Len() int { return len(c.out) }

// ElementSize returns the size of each element in bytes.
func (c *Credits) ElementSize() int { return c.size }

// RKey returns the remote key of all elements, if they have the same.
func (c *Credits) RKey() uint32 { return c.rkey }

// Key returns the remote key of an element that was taken. Only the sender calls it.
func (c *Credits) Key(elem uint16) uint32 {
	if c.keys == nil {
		return c.rkey
	}
	return c.keys[elem]
}

// Address returns the remote address of an element.
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

// Available returns the number of elements that can be taken. Only the sender calls it.
func (c *Credits) Available() int {
	if c.fresh.Load() {
		c.fetch()
	}
	return c.nFree
}

// index returns the index in free of the element that was freed i elements after the first.
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

// Return makes an element available that the peer has named in an update. If the element is
// not out, the error wraps ErrNotOut.
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

// Outstanding iterates over the elements that are out. Elements that change their state in
// the meantime may or may not be among them.
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

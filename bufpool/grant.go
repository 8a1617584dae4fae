package bufpool

import (
	"fmt"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/protocol"
)

// Grant is the initiator's side of a pool: the peer's elements that this side
// may write. One goroutine, the sender, calls Take; another one, which handles
// the peer's updates, calls Return. Ledger may be called from anywhere.
type Grant struct {
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

// NewGrant makes a grant of n elements of size bytes at the peer's address
// addr, written with the key rkey. All are available. The caller has checked
// that the elements do not wrap around the address space.
func NewGrant(addr uint64, rkey uint32, size, n int, order Order) *Grant {
	g := &Grant{
		addr: addr, rkey: rkey, size: size, order: order,
		out:   make([]atomic.Bool, n),
		free:  make([]uint16, n),
		nFree: n,
		back:  make([]uint16, 0, n),
	}
	g.fill()
	return g
}

// Renew is NewGrant in the memory of g, as far as that is enough. Nobody may take
// or return elements of g any more.
func (g *Grant) Renew(addr uint64, rkey uint32, size, n int, order Order) *Grant {
	if n > cap(g.out) {
		return NewGrant(addr, rkey, size, n, order)
	}
	r := &Grant{addr: addr, rkey: rkey, size: size, order: order, out: g.out[:n], free: g.free[:n], nFree: n,
		back: g.back[:0]}
	for i := range r.out {
		r.out[i].Store(false)
	}
	r.fill()
	return r
}

// fill makes all elements available.
func (g *Grant) fill() {
	n := len(g.free)
	for i := range g.free {
		if g.free[i] = uint16(i); g.order == LatestFirst {
			g.free[i] = uint16(n - 1 - i)
		}
	}
}

// Len is the number of elements.
func (g *Grant) Len() int { return len(g.out) }

// ElementSize is the size of each element in bytes.
func (g *Grant) ElementSize() int { return g.size }

// RKey is the key to write the elements with, if it is the same for all.
func (g *Grant) RKey() uint32 { return g.rkey }

// SetKeys gives each element a key of its own, which it has until it is
// returned; protocol.NextKey follows. Before the first Take; keys is the grant's
// from now on.
func (g *Grant) SetKeys(keys []uint32) { g.keys = keys }

// Key is the key to write an element with that was taken. For the one who takes.
func (g *Grant) Key(elem uint16) uint32 {
	if g.keys == nil {
		return g.rkey
	}
	return g.keys[elem]
}

// Address is where an element begins in the peer's memory.
func (g *Grant) Address(elem uint16) uint64 { return g.addr + uint64(elem)*uint64(g.size) }

// Take uses up one credit and returns its element.
func (g *Grant) Take() (elem uint16, ok bool) {
	if g.fresh.Load() {
		g.fetch()
	}
	if g.nFree == 0 {
		return 0, false
	}
	g.nFree--
	if g.order == InOrder {
		elem = g.free[g.first]
		g.first = g.index(1)
	} else {
		elem = g.free[g.index(g.nFree)]
	}
	g.out[elem].Store(true)
	g.nOut.Add(1)
	if !g.used.Load() {
		g.used.Store(true)
	}
	return elem, true
}

// Used reports whether an element was taken since the last call. It may be called
// from any one goroutine.
func (g *Grant) Used() bool { return g.used.Swap(false) }

// Credits is how many elements can be taken. For the one who takes.
func (g *Grant) Credits() int {
	if g.fresh.Load() {
		g.fetch()
	}
	return g.nFree
}

// index is where the element is that was freed i elements after the first.
func (g *Grant) index(i int) int {
	if i += g.first; i >= len(g.free) {
		i -= len(g.free)
	}
	return i
}

// Empty reports whether there is no credit.
func (g *Grant) Empty() bool { return g.nFree == 0 && !g.fresh.Load() }

func (g *Grant) fetch() {
	g.mu.Lock()
	g.fresh.Store(false)
	for _, e := range g.back {
		g.free[g.index(g.nFree)] = e
		g.nFree++
	}
	g.back = g.back[:0]
	g.mu.Unlock()
}

// Return gives back an element that the peer names in an update. An element
// that is not out is refused.
func (g *Grant) Return(elem uint32) error {
	if elem >= uint32(len(g.out)) {
		return fmt.Errorf("%w: element %d of %d", ErrNotOut, elem, len(g.out))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.out[elem].CompareAndSwap(true, false) {
		return fmt.Errorf("%w: element %d", ErrNotOut, elem)
	}
	g.nOut.Add(-1)
	if g.keys != nil {
		g.keys[elem] = protocol.NextKey(g.keys[elem])
	}
	g.back = append(g.back, uint16(elem))
	g.fresh.Store(true)
	return nil
}

// Outstanding lists the elements that are out. Those that change meanwhile may or
// may not be among them.
func (g *Grant) Outstanding() iter.Seq[uint16] {
	return func(yield func(uint16) bool) {
		for i := range g.out {
			if g.out[i].Load() && !yield(uint16(i)) {
				return
			}
		}
	}
}

// Ledger counts the elements by state.
func (g *Grant) Ledger() Ledger {
	o := int(g.nOut.Load())
	return Ledger{Elements: len(g.out), Available: len(g.out) - o, Out: o}
}

package bufpool

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Grant is the initiator's side of a pool: the peer's elements that this side
// may write. One goroutine, the sender, calls Take; another one, which handles
// the peer's updates, calls Return. Ledger may be called from anywhere.
type Grant struct {
	addr uint64
	size int
	rkey uint32
	out  []atomic.Bool
	free []uint16 // the sender's own stack; the last one freed is on top

	nOut  atomic.Int32
	fresh atomic.Bool // back has something; read without the lock on every frame
	mu    sync.Mutex
	back  []uint16 // returned by the peer, not yet fetched by the sender
}

// NewGrant makes a grant of n elements of size bytes at the peer's address
// addr, written with the key rkey. All are available. The caller has checked
// that the elements do not wrap around the address space.
func NewGrant(addr uint64, rkey uint32, size, n int) *Grant {
	g := &Grant{
		addr: addr, rkey: rkey, size: size,
		out:  make([]atomic.Bool, n),
		free: make([]uint16, n),
		back: make([]uint16, 0, n),
	}
	for i := range g.free {
		g.free[i] = uint16(n - 1 - i)
	}
	return g
}

// ElementSize is the size of each element in bytes.
func (g *Grant) ElementSize() int { return g.size }

// RKey is the key to write the elements with.
func (g *Grant) RKey() uint32 { return g.rkey }

// Address is where an element begins in the peer's memory.
func (g *Grant) Address(elem uint16) uint64 { return g.addr + uint64(elem)*uint64(g.size) }

// Take uses up one credit and returns its element, the one returned last.
func (g *Grant) Take() (elem uint16, ok bool) {
	if g.fresh.Load() {
		g.fetch()
	}
	n := len(g.free)
	if n == 0 {
		return 0, false
	}
	elem = g.free[n-1]
	g.free = g.free[:n-1]
	g.out[elem].Store(true)
	g.nOut.Add(1)
	return elem, true
}

// Empty reports whether there is no credit.
func (g *Grant) Empty() bool { return len(g.free) == 0 && !g.fresh.Load() }

func (g *Grant) fetch() {
	g.mu.Lock()
	g.fresh.Store(false)
	g.free = append(g.free, g.back...)
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
	g.back = append(g.back, uint16(elem))
	g.fresh.Store(true)
	return nil
}

// Ledger counts the elements by state.
func (g *Grant) Ledger() Ledger {
	o := int(g.nOut.Load())
	return Ledger{Elements: len(g.out), Available: len(g.out) - o, Out: o}
}

package pools

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
)

// Slots has the send slots of a data channel. Their number grows when the sender runs
// out of them. The sender asks for more and continues with those that it has; the pool
// manager registers the memory, because that may take a while. Slots are never removed
// before the end of the session.
type Slots struct {
	*bufpool.Slots // used by the sender only
	most           int
	size           int          // bytes
	wanted         atomic.Int32 // number of slots wanted; set by the sender
	made           atomic.Int32 // number of slots registered; set by the pool manager
	grown          atomic.Pointer[piece]
}

// piece is memory of slots that the pool manager has registered and the sender has not added yet.
type piece struct {
	mem []byte
	key uint32
}

// newSlots returns send slots of size bytes, with the first few registered. Their number
// can grow to most.
func newSlots(c *core.Session, most, size int) (*Slots, error) {
	s := &Slots{Slots: bufpool.NewSlots(most, size), most: most, size: size}
	n := min(FirstSlots, most)
	if err := s.register(c, n, true); err != nil {
		return nil, err
	}
	s.Grow()
	return s, nil
}

// register registers memory for n more slots. It is called when the sender has added those before.
func (s *Slots) register(c *core.Session, n int, first bool) error {
	arena, err := c.Memory.Get(n*s.size, first)
	if err != nil {
		return err
	}
	mem := arena.Bytes()[:n*s.size]
	r, err := c.Domain.Register(mem, 0)
	if err != nil {
		return fmt.Errorf("register %d send slots: %w", n, errors.Join(err, c.Memory.Put(arena)))
	}
	s.made.Add(int32(n))
	s.grown.Store(&piece{mem, r.LKey()})
	return nil
}

// Grow adds the slots that were registered since the last call, and reports whether there are any. The
// sender calls it.
func (s *Slots) Grow() bool {
	p := s.grown.Swap(nil)
	if p == nil {
		return false
	}
	s.Add(p.mem, p.key)
	return true
}

// Pinned returns the size of the registered memory.
func (s *Slots) Pinned() int { return int(s.made.Load()) * s.size }

// lacking reports whether more slots are wanted than are registered.
func (s *Slots) lacking() bool { return s.wanted.Load() > s.made.Load() }

// Want asks for twice as many slots as there are. It reports false if so many were already
// wanted. The sender calls it when all slots are in use.
func (s *Slots) Want() bool {
	n := int32(min(2*s.Len(), s.most))
	if n <= s.wanted.Load() {
		return false
	}
	s.wanted.Store(n)
	return true
}

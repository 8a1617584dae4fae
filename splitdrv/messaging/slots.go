package messaging

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/splitnic/splitnic/bufpool"
)

// sendSlots has the send slots of a data channel. Their number grows when the sender runs
// out of them. The sender asks for more and continues with those that it has; the pool
// manager registers the memory, because that may take a while. Slots are never removed
// before the end of the session.
type sendSlots struct {
	*bufpool.Slots // used by the sender only
	most           int
	size           int          // bytes
	wanted         atomic.Int32 // number of slots wanted; set by the sender
	made           atomic.Int32 // number of slots registered; set by the pool manager
}

// newSendSlots returns send slots of size bytes, with the first few registered. Their number
// can grow to most.
func newSendSlots(c *shared, most, size int) (*sendSlots, error) {
	s := &sendSlots{Slots: bufpool.NewSlots(most, size), most: most, size: size}
	n := min(firstSlots, most)
	mem, key, err := s.register(c, n, true)
	if err != nil {
		return nil, err
	}
	s.Add(mem, key)
	s.made.Store(int32(n))
	return s, nil
}

// register registers memory for n more slots.
func (s *sendSlots) register(c *shared, n int, first bool) (mem []byte, key uint32, err error) {
	arena, err := c.memory.get(n*s.size, first)
	if err != nil {
		return nil, 0, err
	}
	mem = arena.Bytes()[:n*s.size]
	r, err := c.domain.Register(mem, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("register %d send slots: %w", n, errors.Join(err, c.memory.put(arena)))
	}
	return mem, r.LKey(), nil
}

// lacking reports whether more slots are wanted than are registered.
func (s *sendSlots) lacking() bool { return s.wanted.Load() > s.made.Load() }

// want asks for twice as many slots as there are. It reports false if so many were already
// wanted. The sender calls it when all slots are in use.
func (s *sendSlots) want() bool {
	n := int32(min(2*s.Len(), s.most))
	if n <= s.wanted.Load() {
		return false
	}
	s.wanted.Store(n)
	return true
}

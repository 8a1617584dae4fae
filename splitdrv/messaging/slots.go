package messaging

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/splitnic/splitnic/bufpool"
)

// sendSlots are the send slots of a data channel, which become more when the sender has
// run out of them. It asks, and goes on with those that it has; the pool manager, who
// may wait for the device, registers memory. What has been added stays until the end of
// the session.
type sendSlots struct {
	*bufpool.Slots // the sender's
	most           int
	size           int          // bytes
	wanted         atomic.Int32 // how many there are to be: the sender's
	made           atomic.Int32 // how many there are, or are on their way to the sender: the pool manager's
}

// newSendSlots makes the first of at most so many slots of size bytes.
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

// lacking reports whether there are to be more.
func (s *sendSlots) lacking() bool { return s.wanted.Load() > s.made.Load() }

// want asks for twice as many slots as there are, and reports whether that is new. It is
// for the sender, when all are in use.
func (s *sendSlots) want() bool {
	n := int32(min(2*s.Len(), s.most))
	if n <= s.wanted.Load() {
		return false
	}
	s.wanted.Store(n)
	return true
}

package bufpool

// Slots divides memory into equal send buffers. The most recently freed one is
// taken first, because it is the one most likely to be in the processor's
// cache. Slots belongs to one goroutine.
type Slots struct {
	mem  []byte
	size int
	free []uint32
	held []bool
}

// NewSlots makes as many slots of size bytes as fit into mem.
func NewSlots(mem []byte, size int) *Slots {
	n := len(mem) / size
	s := &Slots{mem: mem, size: size, free: make([]uint32, n), held: make([]bool, n)}
	for i := range s.free {
		s.free[i] = uint32(n - 1 - i)
	}
	return s
}

// Take hands out a free slot, if there is one.
func (s *Slots) Take() (slot uint32, ok bool) {
	n := len(s.free)
	if n == 0 {
		return 0, false
	}
	slot = s.free[n-1]
	s.free = s.free[:n-1]
	s.held[slot] = true
	return slot, true
}

// Put frees a slot. Freeing one twice is a bug of the caller's and panics.
func (s *Slots) Put(slot uint32) {
	if !s.held[slot] {
		panic("bufpool: slot freed twice")
	}
	s.held[slot] = false
	s.free = append(s.free, slot)
}

// Bytes is the memory of a slot; it belongs to whoever holds the slot.
func (s *Slots) Bytes(slot uint32) []byte {
	off := int(slot) * s.size
	return s.mem[off : off+s.size : off+s.size]
}

// Free is the number of free slots.
func (s *Slots) Free() int { return len(s.free) }

// Len is the number of slots.
func (s *Slots) Len() int { return len(s.held) }

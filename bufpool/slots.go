package bufpool

// Slots has send buffers of the same size. Their memory is added in pieces. The slot freed
// last is taken first, because it is the most likely one to be in the processor's cache.
// Only one goroutine may use it.
type Slots struct {
	size int
	mem  [][]byte // memory of each slot
	keys []uint32 // local key of each slot
	free []uint32
	held []bool
}

// NewSlots returns Slots without slots, with room for most slots of size bytes.
func NewSlots(most, size int) *Slots {
	return &Slots{size: size, mem: make([][]byte, 0, most), keys: make([]uint32, 0, most),
		free: make([]uint32, 0, most), held: make([]bool, 0, most)}
}

// Add adds as many slots as fit into mem, a region with local key key. It does not allocate
// memory as long as there are no more slots than NewSlots made room for.
func (s *Slots) Add(mem []byte, key uint32) {
	first := len(s.mem)
	for ; len(mem) >= s.size; mem = mem[s.size:] {
		s.mem = append(s.mem, mem[:s.size:s.size])
		s.keys = append(s.keys, key)
		s.held = append(s.held, false)
	}
	for i := len(s.mem) - 1; i >= first; i-- {
		s.free = append(s.free, uint32(i))
	}
}

// Take takes a free slot. ok is false if there is none.
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

// Put frees a slot. It panics if the slot is free already.
func (s *Slots) Put(slot uint32) {
	if !s.held[slot] {
		panic("bufpool: slot freed twice")
	}
	s.held[slot] = false
	s.free = append(s.free, slot)
}

// Bytes returns the memory of a slot. It belongs to the caller while the slot is taken.
func (s *Slots) Bytes(slot uint32) []byte { return s.mem[slot] }

// Key returns the local key of a slot.
func (s *Slots) Key(slot uint32) uint32 { return s.keys[slot] }

// Free returns the number of free slots.
func (s *Slots) Free() int { return len(s.free) }

// Len returns the number of slots.
func (s *Slots) Len() int { return len(s.mem) }

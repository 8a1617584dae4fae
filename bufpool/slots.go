package bufpool

// Slots are equal send buffers, in memory that is added piece by piece. The most
// recently freed one is taken first, because it is the one most likely to be in the
// processor's cache. Slots belongs to one goroutine.
type Slots struct {
	size int
	mem  [][]byte // of each slot
	keys []uint32 // of the region that it lies in
	free []uint32
	held []bool
}

// NewSlots makes room for at most so many slots of size bytes, of which there are none
// yet.
func NewSlots(most, size int) *Slots {
	return &Slots{size: size, mem: make([][]byte, 0, most), keys: make([]uint32, 0, most),
		free: make([]uint32, 0, most), held: make([]bool, 0, most)}
}

// Add makes as many slots as fit into mem, a region with this key. Within the number
// that NewSlots was told it allocates nothing.
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
func (s *Slots) Bytes(slot uint32) []byte { return s.mem[slot] }

// Key is that of the region which the slot lies in.
func (s *Slots) Key(slot uint32) uint32 { return s.keys[slot] }

// Free is the number of free slots.
func (s *Slots) Free() int { return len(s.free) }

// Len is the number of slots.
func (s *Slots) Len() int { return len(s.mem) }

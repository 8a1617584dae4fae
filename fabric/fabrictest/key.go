package fabrictest

import "math/rand/v2"

// A key is a table index in its upper 24 bits and a tag in the lower 8, as in
// the InfiniBand specification; the tag changes with each use of the entry.
// Local keys have the top bit set in addition.
const (
	tagBits  = 8
	localBit = 1 << 31
)

func (t *keyTable) init() { t.base = 1 + rand.Uint32N(1<<16) }

// take reserves an entry and returns the entry and its key.
func (t *keyTable) take() (e *keyEntry, key uint32) {
	var i uint32
	if n := len(t.free); n > 64 { // reuse entries late, so that stale keys stay invalid for long
		i = t.free[0]
		t.free = t.free[1:]
	} else {
		i = uint32(len(t.entries))
		t.entries = append(t.entries, keyEntry{tag: uint8(rand.Uint32())})
	}
	e = &t.entries[i]
	e.tag++
	return e, (t.base+i)<<tagBits | uint32(e.tag)
}

// give returns the entry of key to the table.
func (t *keyTable) give(key uint32) {
	i := key>>tagBits - t.base
	t.entries[i] = keyEntry{tag: uint8(key)}
	t.free = append(t.free, i)
}

func (t *keyTable) find(key uint32) *keyEntry {
	i := key>>tagBits - t.base
	if uint64(i) >= uint64(len(t.entries)) {
		return nil
	}
	return &t.entries[i]
}

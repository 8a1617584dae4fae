package protocol

import (
	"iter"
	"slices"
)

// MACSet is an immutable set of addresses in ascending order. Any goroutine may use it.
type MACSet []uint64

// NewMACSet returns the set of the addresses.
func NewMACSet(macs []MAC) MACSet {
	s := make(MACSet, 0, len(macs))
	for _, m := range macs {
		s = append(s, m.number())
	}
	slices.Sort(s)
	return slices.Compact(s)
}

// Has reports whether an address is in the set.
func (s MACSet) Has(m MAC) bool { return s.Index(m) >= 0 }

// Index returns the index of an address in the set, or -1. It allocates nothing.
func (s MACSet) Index(m MAC) int {
	if i, found := slices.BinarySearch(s, m.number()); found {
		return i
	}
	return -1
}

// All yields the addresses in ascending order.
func (s MACSet) All() iter.Seq[MAC] {
	return func(yield func(MAC) bool) {
		for _, n := range s {
			if !yield(MAC{byte(n >> 40), byte(n >> 32), byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}) {
				return
			}
		}
	}
}

func (m MAC) number() uint64 {
	return uint64(m[0])<<40 | uint64(m[1])<<32 | uint64(m[2])<<24 | uint64(m[3])<<16 | uint64(m[4])<<8 | uint64(m[5])
}

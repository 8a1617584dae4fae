package policy

import (
	"cmp"
	"maps"
	"slices"

	"github.com/splitnic/splitnic/protocol"
)

// reserved are the addresses that entries of single hosts name, and whose they
// are. The longest pattern that an address has decides: of 02:aa:* and
// 02:aa:00:00:00:01 the latter keeps that address from those who have only the
// former. It is never changed.
type reserved struct {
	bySize [6][]claim // by the number of bytes that count, less one; in ascending order
}

// claim is a pattern, and the keys of the entries that name it.
type claim struct {
	prefix  uint64
	entries []string
}

// newReserved is what the entries name; nil if nothing.
func newReserved(hosts map[string]*Host) *reserved {
	var r *reserved
	for _, key := range slices.Sorted(maps.Keys(hosts)) {
		if hosts[key].entry == "" {
			continue // its addresses are those of the default, which are for all
		}
		for _, p := range hosts[key].MACs {
			if r == nil {
				r = new(reserved)
			}
			r.add(p, key)
		}
	}
	return r
}

func (r *reserved) add(p Pattern, key string) {
	claims := &r.bySize[p.n-1]
	at, found := slices.BinarySearchFunc(*claims, prefixOf(p.addr, p.n),
		func(c claim, prefix uint64) int { return cmp.Compare(c.prefix, prefix) })
	if !found {
		*claims = slices.Insert(*claims, at, claim{prefix: prefixOf(p.addr, p.n)})
	}
	if c := &(*claims)[at]; !slices.Contains(c.entries, key) {
		c.entries = append(c.entries, key)
	}
}

// against reports whether address m is kept from the host with that entry.
func (r *reserved) against(m protocol.MAC, entry string) bool {
	if r == nil {
		return false
	}
	for n := len(m); n > 0; n-- {
		claims, prefix := r.bySize[n-1], prefixOf(m, n)
		low, high := 0, len(claims)
		for low < high {
			mid := int(uint(low+high) / 2)
			if claims[mid].prefix < prefix {
				low = mid + 1
			} else {
				high = mid
			}
		}
		if low < len(claims) && claims[low].prefix == prefix {
			return !slices.Contains(claims[low].entries, entry)
		}
	}
	return false
}

// prefixOf is the first n bytes of an address, as a number.
func prefixOf(m [6]byte, n int) (v uint64) {
	for _, b := range m[:n] {
		v = v<<8 | uint64(b)
	}
	return v
}

package policy

import (
	"cmp"
	"maps"
	"slices"
)

// newReserved returns the addresses that the entries of hosts name, or nil if there are none.
func newReserved(hosts map[string]*Host) *reserved {
	var r *reserved
	for _, key := range slices.Sorted(maps.Keys(hosts)) {
		if hosts[key].entry == "" {
			continue // the host has the addresses of the default, which are for all hosts
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

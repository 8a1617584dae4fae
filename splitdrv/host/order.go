package host

import (
	"fmt"
	"slices"
	"strings"
)

// none is no I/O unit, where its index is asked for.
const none = -1

// sequence is the order in which to try n I/O units after a session with one of
// them: the next ones first, then those that are preferred to it, and itself
// last. After none, it is that of preference.
func sequence(n, after int) []int {
	order := make([]int, 0, n)
	for i := range n {
		order = append(order, (after+1+i)%n)
	}
	return order
}

// startingWith is order with one of its I/O units moved to the front.
func startingWith(order []int, first int) []int {
	rest := slices.DeleteFunc(slices.Clone(order), func(i int) bool { return i == first })
	return append([]int{first}, rest...)
}

// another is the index of the I/O unit with that address, or of the one that is
// next after present if it is empty.
func (h *Host) another(addr string, present int) (int, error) {
	units := h.cfg.IOUnits
	i := slices.Index(units, addr)
	switch {
	case len(units) == 1:
		return none, fmt.Errorf("%w than %s; name several with --iounit", errNoOther, units[0])
	case addr == "":
		return (present + 1) % len(units), nil
	case i < 0:
		return none, fmt.Errorf("%s is none of this host's I/O units: %s", addr, strings.Join(units, ", "))
	case i == present:
		return none, fmt.Errorf("%s is the I/O unit in use", addr)
	}
	return i, nil
}

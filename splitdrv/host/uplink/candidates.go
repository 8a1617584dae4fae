package uplink

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// None is no I/O unit, where its index is asked for.
const None = -1

// ErrNoOther is wrapped when there is only one I/O unit.
var ErrNoOther = errors.New("there is no other I/O unit")

// Candidates are the addresses of the I/O units of a host, in order of preference.
type Candidates []string

// After is the order in which to try I/O units after a session with one of them:
// the next ones first, then those that are preferred to it, and itself last. After
// None it is that of preference.
func (c Candidates) After(unit int) []int {
	order := make([]int, 0, len(c))
	for i := range c {
		order = append(order, (unit+1+i)%len(c))
	}
	return order
}

// StartingWith is that order with another I/O unit, unless that is None, moved to
// the front.
func (c Candidates) StartingWith(first, unit int) []int {
	order := c.After(unit)
	if first == None {
		return order
	}
	return append([]int{first}, without(order, []int{first})...)
}

// Choose is the index of the I/O unit with that address, or of the one that is
// next after the one in use if it is empty.
func (c Candidates) Choose(addr string, inUse int) (int, error) {
	i := slices.Index(c, addr)
	switch {
	case len(c) == 1:
		return None, fmt.Errorf("%w than %s; name several with --iounit", ErrNoOther, c[0])
	case addr == "":
		return (inUse + 1) % len(c), nil
	case i < 0:
		return None, fmt.Errorf("%s is none of this host's I/O units: %s", addr, strings.Join(c, ", "))
	case i == inUse:
		return None, fmt.Errorf("%s is the I/O unit in use", addr)
	}
	return i, nil
}

// Others are all I/O units but one, in the order in which to try them after it.
func (c Candidates) Others(unit int) []int { return without(c.After(unit), []int{unit}) }

// ForStandby are the I/O units that a session on standby may be with, while one of
// them is in use, in order: with failBack those that are preferred to it, and with
// standby the others.
func (c Candidates) ForStandby(inUse int, failBack, standby bool) (list []int) {
	if failBack {
		for i := range inUse {
			list = append(list, i)
		}
	}
	if standby {
		for _, i := range c.Others(inUse) {
			if !failBack || i > inUse {
				list = append(list, i)
			}
		}
	}
	return list
}

// without is a list without some of it.
func without(list, drop []int) []int {
	return slices.DeleteFunc(slices.Clone(list), func(i int) bool { return slices.Contains(drop, i) })
}

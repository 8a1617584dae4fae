package uplink

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// None is the address that means no I/O unit.
const None = ""

// ErrNoOther is wrapped when there is only one I/O unit.
var ErrNoOther = errors.New("there is no other I/O unit")

// Candidates has the addresses of a host's I/O units, each once, in order of preference. The
// I/O unit in use need not be among them any more.
type Candidates []string

// Distinct returns the candidates of a list that may have duplicates.
func Distinct(list []string) Candidates {
	var c Candidates
	for _, addr := range list {
		if !slices.Contains(c, addr) {
			c = append(c, addr)
		}
	}
	return c
}

// After returns the order in which to try I/O units after a session with unit: first those
// after it, then those before it, and unit itself last. If unit is None or not a candidate,
// it is the order of preference.
func (c Candidates) After(unit string) []string {
	next := slices.Index(c, unit) + 1
	return slices.Concat(c[next:], c[:next])
}

// StartingWith returns the order of After with first, unless that is None, moved to the
// front.
func (c Candidates) StartingWith(first, unit string) []string {
	order := c.After(unit)
	if first == None {
		return order
	}
	return slices.Concat([]string{first}, without(order, first))
}

// Choose returns the I/O unit to switch to: addr, or the next one after the one in use if
// addr is empty. It returns an error if that is impossible.
func (c Candidates) Choose(addr, inUse string) (string, error) {
	others := c.Others(inUse)
	switch {
	case len(others) == 0:
		return None, fmt.Errorf("%w than %s; name several with --iounit", ErrNoOther, inUse)
	case addr == "":
		return others[0], nil
	case addr == inUse:
		return None, fmt.Errorf("%s is the I/O unit in use", addr)
	case !slices.Contains(c, addr):
		return None, fmt.Errorf("%s is not among this host's I/O units: %s", addr, strings.Join(c, ", "))
	}
	return addr, nil
}

// Others returns all candidates except unit, in the order in which to try them after it.
func (c Candidates) Others(unit string) []string { return without(c.After(unit), unit) }

// Wanted has the I/O units for a session on standby, in order: those preferred to the one in
// use, then the others.
type Wanted struct{ Preferred, Others []string }

// ForStandby returns the I/O units for a session on standby. With failBack it has those
// preferred to the one in use, which are all if that is not a candidate any more; with
// standby it has the others.
func (c Candidates) ForStandby(inUse string, failBack, standby bool) (w Wanted) {
	if failBack {
		at := slices.Index(c, inUse)
		if at < 0 {
			at = len(c)
		}
		w.Preferred = slices.Clone(c[:at])
	}
	if standby {
		w.Others = without(c.Others(inUse), w.Preferred...)
	}
	return w
}

func without(list []string, drop ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(unit string) bool { return slices.Contains(drop, unit) })
}

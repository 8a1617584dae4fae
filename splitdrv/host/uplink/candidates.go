package uplink

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// None is no I/O unit, where its address is asked for.
const None = ""

// ErrNoOther is wrapped when there is only one I/O unit.
var ErrNoOther = errors.New("there is no other I/O unit")

// Candidates are the addresses of the I/O units of a host, each once, in order of
// preference. One in use may be none of them any more.
type Candidates []string

// Distinct are the candidates of a list in which some may be several times.
func Distinct(list []string) Candidates {
	var c Candidates
	for _, addr := range list {
		if !slices.Contains(c, addr) {
			c = append(c, addr)
		}
	}
	return c
}

// After is the order in which to try I/O units after a session with one of them:
// the next ones first, then those that are preferred to it, and itself last. After
// None, and after one that is no candidate, it is that of preference.
func (c Candidates) After(unit string) []string {
	next := slices.Index(c, unit) + 1
	return slices.Concat(c[next:], c[:next])
}

// StartingWith is that order with another I/O unit, unless that is None, moved to
// the front.
func (c Candidates) StartingWith(first, unit string) []string {
	order := c.After(unit)
	if first == None {
		return order
	}
	return slices.Concat([]string{first}, without(order, first))
}

// Choose is addr, if it can be gone over to from the one in use, or the I/O unit that
// is next after that one if addr is empty.
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

// Others are all candidates but one, in the order in which to try them after it.
func (c Candidates) Others(unit string) []string { return without(c.After(unit), unit) }

// Wanted are the I/O units that a session on standby may be with, in order: those that
// are preferred to the one in use, then the others.
type Wanted struct{ Preferred, Others []string }

// ForStandby is what is wanted while one of them is in use: with failBack those that are
// preferred to it, which are all if it is no candidate any more, and with standby the
// others.
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

// without is a list without some of it.
func without(list []string, drop ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(unit string) bool { return slices.Contains(drop, unit) })
}

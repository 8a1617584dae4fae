// Package cpus has lists of processors in the format of cpuset(7), and finds the processors
// that this process may use.
package cpus

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Max is the number of processors in a unix.CPUSet.
const Max = 1024

// List has numbers of processors in ascending order, without duplicates.
type List []int

// Parse reads a list such as 0-3,8. The empty text is the empty list.
func Parse(text string) (List, error) {
	var l List
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := number(from)
		last := first
		if err == nil && isRange {
			last, err = number(to)
		}
		if err == nil && last < first {
			err = errors.New("ends before it begins")
		}
		if err != nil {
			return nil, fmt.Errorf("%q is no processor or range of processors (such as 0-3,8): %w", part, err)
		}
		for n := first; n <= last; n++ {
			l = append(l, n)
		}
	}
	slices.Sort(l)
	return slices.Compact(l), nil
}

// number parses digits, and nothing else that strconv accepts, such as a sign.
func number(text string) (int, error) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, errors.New("must be digits")
	}
	n, err := strconv.Atoi(text)
	if err != nil || n >= Max {
		return 0, fmt.Errorf("must be below %d", Max)
	}
	return n, nil
}

// String returns the list in the format of Parse and of the kernel.
func (l List) String() string {
	var b strings.Builder
	for i := 0; i < len(l); {
		j := i
		for j+1 < len(l) && l[j+1] == l[j]+1 {
			j++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%d", l[i])
		if j > i {
			fmt.Fprintf(&b, "-%d", l[j])
		}
		i = j + 1
	}
	return b.String()
}

// MarshalText implements encoding.TextMarshaler.
func (l List) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *List) UnmarshalText(text []byte) (err error) {
	*l, err = Parse(string(text))
	return err
}

// Set returns the mask of the list for sched_setaffinity(2).
func (l List) Set() unix.CPUSet {
	var s unix.CPUSet
	for _, n := range l {
		s.Set(n)
	}
	return s
}

// Of returns the list of the processors in a mask.
func Of(s *unix.CPUSet) List {
	var l List
	for n := range Max {
		if s.IsSet(n) {
			l = append(l, n)
		}
	}
	return l
}

// Without returns the processors of l that are not in other.
func (l List) Without(other List) List {
	return slices.DeleteFunc(slices.Clone(l), func(n int) bool { return slices.Contains(other, n) })
}

// Spread divides the processors into n lists of neighbours of about the same length. If there
// are fewer than n processors, each is in several lists.
func (l List) Spread(n int) []List {
	shares := make([]List, n)
	for i := range shares {
		if len(l) <= n {
			shares[i] = List{l[i%len(l)]}
		} else {
			shares[i] = slices.Clone(l[i*len(l)/n : (i+1)*len(l)/n])
		}
	}
	return shares
}

// Allowed returns the processors that this process was allowed to use at the time of the
// first call. The main thread's mask can change later, if its work is bound to processors.
var Allowed = sync.OnceValue(func() List {
	var s unix.CPUSet
	if err := unix.SchedGetaffinity(0, &s); err != nil {
		return nil // the machine has more processors than a mask
	}
	return Of(&s)
})

// Online returns the processors that are online, or nil if they are unknown.
func Online() List {
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return nil
	}
	l, err := Parse(strings.TrimSpace(string(text)))
	if err != nil {
		return nil
	}
	return l
}

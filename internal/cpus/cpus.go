// Package cpus names processors, as cpuset(7) writes them, and tells which of
// them this process may use.
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

// Max is how many processors a mask of the kernel's can name here.
const Max = 1024

// List is a set of processors by number, in ascending order, each once.
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

// number reads digits, and nothing else that strconv takes.
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

// String is the list as Parse reads it, and as the kernel writes it.
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

// Set is the list as a mask for sched_setaffinity(2).
func (l List) Set() unix.CPUSet {
	var s unix.CPUSet
	for _, n := range l {
		s.Set(n)
	}
	return s
}

// Of lists the processors in a mask.
func Of(s *unix.CPUSet) List {
	var l List
	for n := range Max {
		if s.IsSet(n) {
			l = append(l, n)
		}
	}
	return l
}

// Without are those of l that are not in other.
func (l List) Without(other List) List {
	return slices.DeleteFunc(slices.Clone(l), func(n int) bool { return slices.Contains(other, n) })
}

// Spread deals the processors out to n, neighbours together: as many to each as
// can be, or, if there are fewer than n, each to several.
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

// Allowed are the processors that this process might use when it was first
// asked for. Later the main thread's mask may be that of work that is bound to
// processors.
var Allowed = sync.OnceValue(func() List {
	var s unix.CPUSet
	if err := unix.SchedGetaffinity(0, &s); err != nil {
		return nil // more processors than a mask has: then nothing is known
	}
	return Of(&s)
})

// Online are the processors that the machine has at work, nil if that cannot be
// told.
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

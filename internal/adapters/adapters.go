// Package adapters has what RDMA adapters do with the verbs that splitnic uses, as it was read in
// their drivers. The file facts.txt is the only place where this is written down: the library of
// ci/softroce/adapter, which has Soft-RoCE behave like an adapter, reads it too; the devices of
// fabrictest.WithFamily, the traits of package conform and the table in docs/adapters.md are made from
// it.
package adapters

import (
	_ "embed"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

//go:embed facts.txt
var facts string

// Answer is what a driver returns to a call: 0, an errno, or a negative errno.
type Answer int

// OK reports whether the call succeeds.
func (a Answer) OK() bool { return a == 0 }

// Errno returns the reason of a failure, whatever its sign.
func (a Answer) Errno() syscall.Errno { return syscall.Errno(max(a, -a)) }

// Unsupported reports whether the call fails because there is no such function.
func (a Answer) Unsupported() bool { return a.Errno() == syscall.EOPNOTSUPP }

// NoLimit is the InlineMax of a family that takes any size.
const NoLimit = math.MaxInt

// Family is a family of adapters. The tags are the names of the facts.
type Family struct {
	Name string

	Driver    string `fact:"driver"`    // kernel driver
	Transport string `fact:"transport"` // infiniband, iwarp or unspecified

	RC           Answer `fact:"rc"` // to the creation of a queue pair
	UC           Answer `fact:"uc"`
	SGE          int    `fact:"sge"`         // pieces of a request
	Inline       string `fact:"inline"`      // refuses, cuts or takes a size above InlineMax
	InlineMax    int    `fact:"inline-max"`  // bytes
	LateInline   bool   `fact:"inline-data"` // inline data is read after the post
	Windows      string `fact:"windows"`     // announced: none, 2A or 2B
	AllocMW      Answer `fact:"alloc-mw"`
	Bind         Answer `fact:"bind"`
	Invalidate   Answer `fact:"invalidate"`
	ArmSolicited Answer `fact:"arm-solicited"`
	ArmsAny      bool   // solicited-only is accepted, and all completions raise events
	QueryQP      Answer `fact:"query-qp"`
	Moderation   Answer `fact:"moderation"`

	WriteImm       Answer `fact:"write-imm"`       // to a write with immediate data
	SolicitedWrite Answer `fact:"solicited-write"` // to a plain write that is solicited
	PostInError    Answer `fact:"post-in-error"`   // to posts in the error state
	FlushWakes     bool   `fact:"flush-wakes"`     // flushed requests raise an event
	QPEvents       string `fact:"qp-events"`       // for what the peer requests: none, fatal or access

	Sources map[string]string // of each fact
}

// Suitable reports whether sessions are possible: on reliable connections without a connection
// manager, with writes that have immediate data.
func (f *Family) Suitable() bool {
	return f.Transport == "infiniband" && f.RC.OK() && f.WriteImm.OK()
}

// answers are the names of the errnos in the file.
var answers = map[string]Answer{
	"ok":         0,
	"EINVAL":     Answer(syscall.EINVAL),
	"EIO":        Answer(syscall.EIO),
	"EOPNOTSUPP": Answer(syscall.EOPNOTSUPP),
}

// All returns the families in the order of the file.
func All() []*Family {
	all, err := parse(facts)
	if err != nil {
		panic(err) // the tests of this package have read the file
	}
	return all
}

// Named returns the family with this name, or nil.
func Named(name string) *Family { return first(func(f *Family) bool { return f.Name == name }) }

// OfDriver returns the first family whose kernel driver has this name, or nil.
func OfDriver(driver string) *Family {
	return first(func(f *Family) bool { return f.Driver == driver })
}

func first(is func(*Family) bool) *Family {
	all := All()
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i]
	}
	return nil
}

func parse(text string) (all []*Family, err error) {
	byName := map[string]*Family{}
	for i, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		if len(words) < 4 {
			return nil, fmt.Errorf("line %d: not a family, a fact, a value and a source", i+1)
		}
		f := byName[words[0]]
		if f == nil {
			f = &Family{Name: words[0], Sources: map[string]string{}}
			byName[f.Name] = f
			all = append(all, f)
		}
		if f.Sources[words[1]] != "" {
			return nil, fmt.Errorf("line %d: %s has the fact %s already", i+1, words[0], words[1])
		}
		if err := f.set(words[1], words[2]); err != nil {
			return nil, fmt.Errorf("line %d: %s %s: %w", i+1, words[0], words[1], err)
		}
		f.Sources[words[1]] = strings.Join(words[3:], " ")
	}
	for _, f := range all {
		for _, name := range names() {
			if f.Sources[name] == "" {
				return nil, fmt.Errorf("%s lacks the fact %s", f.Name, name)
			}
		}
	}
	return all, nil
}

// names returns the names of all facts.
func names() (all []string) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Family]()) {
		if name := field.Tag.Get("fact"); name != "" {
			all = append(all, name)
		}
	}
	return all
}

// words has the values of facts that are words. The last one means true if the fact is a bool.
var words = map[string][]string{
	"transport":   {"infiniband", "iwarp", "unspecified"},
	"inline":      {"refuses", "cuts", "takes"},
	"inline-data": {"copied", "late"},
	"windows":     {"none", "2A", "2B"},
	"flush-wakes": {"no", "yes"},
	"qp-events":   {"none", "fatal", "access"},
}

// set sets the field of a fact.
func (f *Family) set(fact, value string) error {
	if fact == "arm-solicited" && value == "any" {
		f.ArmsAny = true
		return nil
	}
	if fact == "inline-max" && value == "none" {
		f.InlineMax = NoLimit
		return nil
	}
	v := reflect.ValueOf(f).Elem()
	for _, field := range reflect.VisibleFields(v.Type()) {
		if field.Tag.Get("fact") == fact {
			return setField(v.FieldByIndex(field.Index), fact, value)
		}
	}
	return fmt.Errorf("there is no such fact")
}

func setField(field reflect.Value, fact, value string) error {
	known := words[fact]
	index := slices.Index(known, value)
	if known != nil && index < 0 {
		return fmt.Errorf("%q is none of %q", value, known)
	}
	switch p := field.Addr().Interface().(type) {
	case *string:
		*p = value
	case *bool:
		*p = index == len(known)-1
	case *Answer:
		name, negative := strings.CutPrefix(value, "-")
		a, ok := answers[name]
		if !ok || a == 0 && negative {
			return fmt.Errorf("%q is no answer", value)
		}
		if *p = a; negative {
			*p = -a
		}
	case *int:
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return fmt.Errorf("%q is no number from 1 on", value)
		}
		*p = n
	}
	return nil
}

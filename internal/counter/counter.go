// Package counter reads lists of counters off structs, so that each counter is typed
// once. Everything that shows counters is made from these lists: the status, the
// metrics, the manual page and docs/counters.md.
//
// A counter is a field, a uint64 or an atomic.Uint64, with the tags
//
//	json    its name in the status
//	metric  the metric that it is a part of, and what of that it is; without one it is
//	        an event among others
//	help    what is counted
package counter

import (
	"reflect"
	"strings"
	"sync/atomic"
)

// Counter describes one counter.
type Counter struct {
	Name      string // in the status
	Direction string // tx or rx
	Metric    string // without its prefix and suffix; "" if it has none of its own
	Part      string // what of that metric it is, if the metric has parts
	Help      string
}

// Of lists the counters of the struct T. A name that begins with tx_ or rx_ says the
// direction; otherwise it is the one given.
func Of[T any](direction string) []Counter {
	t := reflect.TypeFor[T]()
	all := make([]Counter, t.NumField())
	for i := range all {
		tag := t.Field(i).Tag
		c := Counter{Name: tag.Get("json"), Direction: direction, Help: tag.Get("help")}
		c.Metric, c.Part, _ = strings.Cut(tag.Get("metric"), ",")
		if d, _, _ := strings.Cut(c.Name, "_"); d == "tx" || d == "rx" {
			c.Direction = d
		}
		all[i] = c
	}
	return all
}

// Values appends the counters of a struct with fields of type uint64, in the order of Of.
func Values(to []uint64, counters any) []uint64 {
	v := reflect.Indirect(reflect.ValueOf(counters))
	for i := range v.NumField() {
		to = append(to, v.Field(i).Uint())
	}
	return to
}

// Snapshot reads a struct of atomic counters into one of uint64 with the same fields.
// Both are pointers.
func Snapshot(to, from any) {
	v, counters := reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem()
	for i := range v.NumField() {
		v.Field(i).SetUint(counters.Field(i).Addr().Interface().(*atomic.Uint64).Load())
	}
}

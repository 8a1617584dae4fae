// Package counter lists the counters of a struct by reflection, so that each counter is
// declared once. The status, the metrics, the manual page and docs/counters.md are made from
// these lists.
//
// A counter is a field, a uint64 or an atomic.Uint64, with the tags
//
//	json    its name in the status
//	metric  its metric, and which part of the metric it is; without this tag it is one
//	        of the events
//	help    description of what is counted
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
	Metric    string // without prefix and suffix; "" if it is one of the events
	Part      string // which part of the metric, if that has parts
	Help      string
}

// Of lists the counters of the struct T. A name that begins with tx_ or rx_ gives the
// direction; the others have the given one.
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

// Snapshot copies a struct of atomic counters to a struct of uint64 with the same fields.
// Both arguments are pointers.
func Snapshot(to, from any) {
	v, counters := reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem()
	for i := range v.NumField() {
		v.Field(i).SetUint(counters.Field(i).Addr().Interface().(*atomic.Uint64).Load())
	}
}

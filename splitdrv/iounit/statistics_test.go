package iounit

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// TestHostCounters gives each counter of a host a different value. The value must be in the status
// under the counter's name, and in Counts at the index of the counter in HostCounters.
func TestHostCounters(t *testing.T) {
	var h HostStatus
	value := uint64(0)
	for _, counters := range []any{&h.Statistics, &h.Dropped, &h.PortCounters} {
		v := reflect.ValueOf(counters).Elem()
		for i := range v.NumField() {
			value++
			v.Field(i).SetUint(value)
		}
	}
	raw, err := json.Marshal(&h)
	if err != nil {
		t.Fatal(err)
	}
	var status map[string]any
	if err := json.Unmarshal(raw, &status); err != nil {
		t.Fatal(err)
	}
	all, counts := HostCounters(), h.Counts()
	if len(all) != len(counts) || uint64(len(all)) != value {
		t.Fatalf("%d counters, %d values, %d fields", len(all), len(counts), value)
	}
	parts := make(map[[3]string]bool)
	for i, c := range all {
		var found any = status
		for name := range strings.SplitSeq(c.Name, ".") {
			within, _ := found.(map[string]any)
			found = within[name]
		}
		if counts[i] != uint64(i+1) || found != float64(i+1) {
			t.Errorf("%s is %v in the status and %d of the counts, want %d", c.Name, found, counts[i], i+1)
		}
		key := [3]string{c.Metric, c.Part, c.Direction}
		if c.Help == "" || c.Metric == "" || parts[key] {
			t.Errorf("%s has no help or no metric, or shares it with another one: %q", c.Name, key)
		}
		parts[key] = true
	}
}

package messaging

import (
	"encoding/json"
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/splitnic/splitnic/internal/counter"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
)

// TestCounters gives each counter a different value. The value must be in the status under the
// counter's name, and in Counts at the index of the counter in Counters.
func TestCounters(t *testing.T) {
	var tx core.TxCount
	var rx core.RxCount
	value := uint64(0)
	for _, counters := range []reflect.Value{reflect.ValueOf(&tx).Elem(), reflect.ValueOf(&rx).Elem()} {
		for i := range counters.NumField() {
			value++
			counters.Field(i).Addr().Interface().(*atomic.Uint64).Store(value)
		}
	}
	var s ChannelStats
	counter.Snapshot(&s.TxCounters, &tx)
	counter.Snapshot(&s.RxCounters, &rx)
	raw, err := json.Marshal(&s)
	if err != nil {
		t.Fatal(err)
	}
	var status map[string]any
	if err := json.Unmarshal(raw, &status); err != nil {
		t.Fatal(err)
	}
	all, counts := Counters(), s.Counts()
	if len(all) != len(counts) || uint64(len(all)) != value {
		t.Fatalf("%d counters, %d values, %d fields", len(all), len(counts), value)
	}
	names, parts := make(map[string]bool), make(map[[3]string]bool)
	for i, c := range all {
		if counts[i] != uint64(i+1) || status[c.Name] != float64(i+1) {
			t.Errorf("%s is %v in the status and %d of the counts, want %d", c.Name, status[c.Name], counts[i], i+1)
		}
		if c.Help == "" || names[c.Name] {
			t.Errorf("%s has no help, or is there twice", c.Name)
		}
		names[c.Name] = true
		if key := [3]string{c.Metric, c.Part, c.Direction}; c.Metric != "" && parts[key] {
			t.Errorf("%s is the same part of a metric as another one: %q", c.Name, key)
		} else {
			parts[key] = true
		}
	}
}

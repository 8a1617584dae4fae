package softroce

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/splitnic/splitnic/scripts/measure/results"
)

// TestFailoverGoals checks the goals of a run of two rounds, one of which has an additional stage and a
// wrong block.
func TestFailoverGoals(t *testing.T) {
	var samples bytes.Buffer
	rec := results.NewRecorder(&samples)
	sink := rec.Of("failover", "cold", 1500)
	for _, v := range []float64{40, 60} {
		sink.Add("carrier lost", "ms", v)
		sink.Add("first answer", "ms", 10*v)
	}
	sink.Add("stage: hello", "ms", 1)
	sink.Add("connections broken", "times", 0)
	sink.Add("blocks wrong", "times", 1)
	f, err := Failover().Read(&samples)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, g := range f.Goals {
		got[g.What+" "+g.Bound] = g.Met
	}
	want := map[string]bool{
		"carrier lost after the kill <= 50": true, "first answer through the other I/O unit <= 300": false,
		"TCP: connections broken <= 0": true, "TCP: blocks wrong <= 0": false,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

package attacks

import (
	"bytes"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/scripts/measure/results"
)

// TestGoals has an attack that costs less than a tenth of the throughput of its round in the median,
// but a fifth in the medians of all rounds, and round trips more. The rate of the attacks is not compared.
func TestGoals(t *testing.T) {
	var samples bytes.Buffer
	rec := results.NewRecorder(&samples)
	for state, tcp := range map[string][]float64{none: {100, 10, 1000}, elsewhere: {50, 5, 100}, attack: {40, 4.6, 95}} {
		for _, v := range tcp {
			rec.Of("stall", state, 1500).Add(throughput, "Mbit/s", v)
			rec.Of("stall", state, 1500).Add(rate, "/s", v)
		}
	}
	rec.Of("stall", elsewhere, 1500).Add(tail, "us", 100)
	rec.Of("stall", attack, 1500).Add(tail, "us", 111)
	f, err := Suite().Read(&samples)
	if err != nil {
		t.Fatal(err)
	}
	var got []results.Goal
	for _, g := range f.Goals {
		g.Value = float64(int(100*g.Value+0.5)) / 100
		got = append(got, g)
	}
	want := []results.Goal{
		{What: "TCP", Group: "stall", Subject: attack, Value: 0.92, Unit: "ratio", RatioTo: elsewhere, Bound: ">= 0.9",
			Met: true},
		{What: "99th percentile of ping", Group: "stall", Subject: attack, Value: 1.11, Unit: "ratio", RatioTo: elsewhere,
			Bound: "<= 1.1"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestNetnsStall measures one class of attacks in all states.
func TestNetnsStall(t *testing.T) {
	testenv.NeedTUN(t)
	testenv.NeedTools(t, "ip", "iperf3", "ping")
	var samples bytes.Buffer
	rec := results.NewRecorder(&samples)
	if err := (&options{pings: true}).measure(t.Context(), rec, 1, []string{"stall"}); err != nil {
		t.Fatal(err)
	}
	f, err := Suite().Read(&samples)
	if err != nil || len(f.Rows) != 8 { // the median, the percentile, and the rate with an attack
		t.Errorf("%+v, %v", f.Rows, err)
	}
	if err := (&options{}).measure(t.Context(), results.NewRecorder(io.Discard), 1, []string{"nonsense"}); err == nil {
		t.Error("an unknown class was measured")
	}
}

package attacks

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/splitnic/splitnic/scripts/measure/results"
)

func row(class, state, metric string, v ...float64) results.Row {
	return results.Row{
		Key:     results.Key{Group: class, Subject: state, Size: 1500, Queues: 1, Metric: metric},
		Samples: v, Median: results.Median(v),
	}
}

// sample returns the figures of an attack, and of two that were measured in state none only.
func sample() results.Rows {
	rs := results.Rows{
		row("stall", none, throughput, 100, 10, 1000), row("stall", elsewhere, throughput, 50, 5, 100),
		row("stall", attack, throughput, 45, 5, 80), row("stall", none, latency, 200), row("stall", elsewhere, latency, 400),
		row("stall", attack, latency, 440), row("stall", attack, rate, 12), row("keys", none, throughput, 7),
		row("floods", none, latency, 8),
	}
	for i := range rs {
		for _, k := range references(&rs[i]) {
			to := rs.Find(k)
			rs[i].Ratio, rs[i].RatioTo = results.RatioByRound(&rs[i], to), to.Subject
		}
	}
	return rs
}

func TestTables(t *testing.T) {
	// A missing figure is not 0. The columns "slower" have the medians of the rounds: of 55, 50
	// and 92, and of 10, 0 and 20.
	want := [][]string{
		{"stall", "100, 50.0, 45.0", "+55 %, +10 %", "200, 400, 440", "+120 %, +10 %", "-, -, -", "-, -", "-, -, -", "12.0"},
		{"keys", "7.00, -, -", "-, -", "-, -, -", "-, -", "-, -, -", "-, -", "-, -, -", "-"},
		{"floods", "-, -, -", "-, -", "8.00, -, -", "-, -", "-, -, -", "-, -", "-, -, -", "-"},
	}
	if d := cmp.Diff(want, tables(sample())[0].Lines[1:]); d != "" {
		t.Error(d)
	}
}

func TestGoals(t *testing.T) {
	rs := append(sample(), row("stall", elsewhere, tail, 100), row("stall", attack, tail, 111))
	last := &rs[len(rs)-1]
	last.Ratio, last.RatioTo = 1.11, elsewhere
	got := goals(rs)
	for i := range got {
		got[i].Value = math.Round(100*got[i].Value) / 100
	}
	want := []results.Goal{
		{What: "stall: TCP", Subject: attack, Value: 0.9, Unit: "ratio", RatioTo: elsewhere, Bound: ">= 0.9", Met: true},
		{What: "stall: 99th percentile of ping", Subject: attack, Value: 1.11, Unit: "ratio", RatioTo: elsewhere,
			Bound: "<= 1.1"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if s := Suite("bench-attacks"); !s.ByRound || slices.Contains(comparable, rate) {
		t.Error("rates of attacks are compared, or not by round")
	}
}

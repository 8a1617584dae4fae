package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestGroups chooses layers. Those that may run at the same time have to be neighbours in layers.
func TestGroups(t *testing.T) {
	for _, tc := range []struct {
		chosen string
		want   [][]string
	}{
		{"", [][]string{{"unit", "netns"}, {"softroce"}, {"machines"}}},
		{"netns", [][]string{{"netns"}}},
		{"unit", [][]string{{"unit"}}},
		{"unit netns", [][]string{{"unit", "netns"}}},
		{"netns unit", [][]string{{"netns"}, {"unit"}}},
		{"softroce netns", [][]string{{"softroce"}, {"netns"}}},
		{"unit softroce", [][]string{{"unit"}, {"softroce"}}},
	} {
		chosen, err := chooseLayers(strings.Fields(tc.chosen))
		if err != nil {
			t.Fatal(err)
		}
		var got [][]string
		for _, g := range groups(chosen) {
			var names []string
			for _, l := range g {
				names = append(names, l.name)
			}
			got = append(got, names)
		}
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%q: %s", tc.chosen, d)
		}
	}
}

// TestRunTogether runs two layers, of which each waits for the other. It expects the results of
// both, a failure of the second one, and the output of the first one before that of the second.
func TestRunTogether(t *testing.T) {
	meet := make(chan struct{})
	pass := func(r *runner, test string) {
		r.results = append(r.results, result{Layer: r.layer, Package: "p", Test: test, Outcome: passed})
	}
	group := []layer{
		{name: "a", run: func(_ context.Context, r *runner) error {
			meet <- struct{}{}
			pass(r, "TestA")
			return nil
		}},
		{name: "b", run: func(_ context.Context, r *runner) error {
			pass(r, "TestB")
			<-meet
			return errors.New("no power")
		}},
	}
	var out strings.Builder
	var got []result
	for i, r := range runTogether(t.Context(), runner{}, group, &out) {
		if r.layer != group[i].name || r.took <= 0 {
			t.Errorf("%d: layer %s took %v", i, r.layer, r.took)
		}
		got = append(got, r.results...)
	}
	want := []result{
		{Layer: "a", Package: "p", Test: "TestA", Outcome: passed},
		{Layer: "b", Package: "p", Test: "TestB", Outcome: passed},
		{Layer: "b", Package: "b", Test: "(run)", Outcome: failed},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	lines := slices.DeleteFunc(strings.Split(out.String(), "\n"), func(l string) bool { return l == "" })
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "== a") || !strings.HasPrefix(lines[1], "== b") ||
		!strings.HasPrefix(lines[2], "FAIL") {
		t.Errorf("%q", lines)
	}
}

package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fixture are the rows of what a run of two rounds noted.
func fixture(t *testing.T) rows {
	t.Helper()
	rs, err := parsed("testdata/results", summarize)
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

func TestMarkdown(t *testing.T) {
	var got bytes.Buffer
	for _, s := range fixture(t).sheets() {
		if err := s.markdown(&got); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/results.md")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got.String()); d != "" {
		t.Error(d)
	}
}

func TestTextHasTheSameCells(t *testing.T) {
	for _, s := range fixture(t).sheets() {
		var got bytes.Buffer
		if err := s.text(&got); err != nil {
			t.Fatal(err)
		}
		for _, l := range s.lines {
			for _, c := range l {
				if !strings.Contains(got.String(), c) {
					t.Errorf("%s: %q is not in\n%s", s.title, c, &got)
				}
			}
		}
	}
}

// What was not measured has no table and no plot.
func TestSomeOfIt(t *testing.T) {
	rs, err := summarize(strings.NewReader("net veth 1500 1 tcp Mbit/s 10\nnet veth 1500 1 ping us 20\n"))
	if err != nil {
		t.Fatal(err)
	}
	var titles []string
	for _, s := range rs.sheets() {
		titles = append(titles, s.title)
	}
	for _, p := range rs.plots() {
		titles = append(titles, p.name)
	}
	if d := cmp.Diff([]string{"Networks with an MTU of 1500, Mbit/s", "networks-1500"}, titles); d != "" {
		t.Error(d)
	}
}

// Every median and its spread is in the data that gnuplot gets.
func TestPlots(t *testing.T) {
	rs := fixture(t)
	scripts := map[string]string{}
	for _, p := range rs.plots() {
		scripts[p.name] = p.script
	}
	for _, r := range rs {
		name, data := "", fmt.Sprintf("%d %g %g %g\n", r.Size, r.Median, r.Min, r.Max)
		switch {
		case r.Name == "bw" && r.Metric == "bandwidth":
			name = "bandwidth-1"
		case r.Name == "net" && strings.HasPrefix(r.Metric, "tcp"):
			name, data = "networks-1500", fmt.Sprintf(" %g", r.Median)
		default:
			continue
		}
		if !strings.Contains(scripts[name], data) {
			t.Errorf("%q is not in %s:\n%s", data, name, scripts[name])
		}
	}
	if _, ok := scripts["latency"]; ok {
		t.Error("a curve of one size was drawn")
	}
}

func TestFigure(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.00176: "0.0018", 0.0321: "0.0321", 0.3214: "0.321", 3.214: "3.21",
		32.14: "32.1", 321.4: "321", 32140: "32140"} {
		if got := figure(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}

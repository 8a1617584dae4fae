package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// counts has the totals of a layer, as in build/test.json.
type counts struct {
	Passed  int     `json:"passed"`
	Failed  int     `json:"failed"`
	Skipped int     `json:"skipped"`
	Seconds float64 `json:"seconds"`
}

// report has the results of all layers.
type report struct {
	strict  bool
	names   []string
	layers  map[string]counts
	results []result
	repeats []string // the parts of layers that ran twice, and why
	claims  []string // errors in the pages that name tests
	shown   []shownClaims
}

// add adds the results of a layer. took is how long the layer ran.
func (r *report) add(name string, results []result, took time.Duration) {
	c := counts{Seconds: float64(took.Milliseconds()) / 1000}
	for _, res := range results {
		switch res.Outcome {
		case passed:
			c.Passed++
		case failed:
			c.Failed++
		case skipped:
			c.Skipped++
		}
	}
	if r.layers == nil {
		r.layers = make(map[string]counts)
	}
	r.names = append(r.names, name)
	r.layers[name] = c
	r.results = append(r.results, results...)
}

// finish writes the report's files to dir, and the report to w. The last line of the report has
// the totals. finish reports whether all is well.
func (r *report) finish(w io.Writer, dir string) (bool, error) {
	if err := r.write(dir); err != nil {
		return false, err
	}
	ok := true
	complain := func(format string, args ...any) {
		ok = false
		fmt.Fprintf(w, format, args...)
	}
	fmt.Fprintln(w)
	for _, res := range r.results {
		switch {
		case res.Outcome == failed:
			complain("failed   %-10s %s %s\n", res.Layer, short(res.Package), res.Test)
		case res.Outcome == skipped && r.strict:
			complain("skipped  %-10s %s %s: %s (no test may be skipped when CI or SPLITNIC_STRICT is set)\n",
				res.Layer, short(res.Package), res.Test, res.Reason)
		case res.Outcome == skipped:
			fmt.Fprintf(w, "skipped  %-10s %s %s: %s\n", res.Layer, short(res.Package), res.Test, res.Reason)
		}
	}
	for _, what := range r.repeats {
		fmt.Fprintln(w, what)
	}
	var total counts
	fmt.Fprintf(w, "%-10s %8s %8s %8s %10s\n", "layer", "passed", "failed", "skipped", "seconds")
	for _, name := range r.names {
		c := r.layers[name]
		fmt.Fprintf(w, "%-10s %8d %8d %8d %10.1f\n", name, c.Passed, c.Failed, c.Skipped, c.Seconds)
		total.Passed += c.Passed
		total.Failed += c.Failed
		total.Skipped += c.Skipped
		total.Seconds += c.Seconds
	}
	fmt.Fprintf(w, "%-10s %8d %8d %8d %10.1f\n", "total", total.Passed, total.Failed, total.Skipped, total.Seconds)
	for _, name := range r.names {
		if c := r.layers[name]; c.Passed+c.Failed == 0 {
			complain("the layer %s ran no test, which counts as a failure\n", name)
			total.Failed++
		}
	}
	for _, s := range r.shown {
		fmt.Fprintln(w, s)
	}
	for _, c := range r.claims {
		complain("%s\n", c)
		total.Failed++
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", total.Passed, total.Failed, total.Skipped)
	return ok, nil
}

// write writes test.json, with the counts of each layer, and tests.jsonl, with a line for each
// test.
func (r *report) write(dir string) error {
	sums, err := json.MarshalIndent(r.layers, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the counts: %w", err)
	}
	var tests bytes.Buffer
	enc := json.NewEncoder(&tests)
	for _, res := range r.results {
		if err := enc.Encode(res); err != nil {
			return fmt.Errorf("encoding a result: %w", err)
		}
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("making a place for the report: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "test.json"), append(sums, '\n'), 0o666); err != nil {
		return fmt.Errorf("writing the counts: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tests.jsonl"), tests.Bytes(), 0o666); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	return nil
}

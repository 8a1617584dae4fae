package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/splitnic/splitnic/internal/testlist"
)

// slowest is the number of slow tests that are listed.
const slowest = 20

// counts has the totals of a layer, as in build/test.json.
type counts struct {
	Passed  int     `json:"passed"`
	Failed  int     `json:"failed"`
	Skipped int     `json:"skipped"`
	Seconds float64 `json:"seconds"`
}

// report has the results of all layers that have run.
type report struct {
	strict   bool
	exists   func(test string) bool
	plan     plan
	names    []string // of the layers
	layers   map[string]counts
	results  []result
	explains explained
	shownOf  []string // claims that are shown, of each document
	wrong    []string // errors in the pages that name tests
}

// add adds the results of a layer, which took so many seconds.
func (r *report) add(name string, results []result, took float64) {
	results = append(results, r.plan.unseen(name, results)...)
	c := counts{Seconds: took}
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
	r.names = append(r.names, name)
	r.layers[name] = c
	r.results = append(r.results, results...)
}

// print prints the report, and reports whether all is well.
func (r *report) print(w io.Writer) bool {
	ok := true
	complain := func(format string, args ...any) {
		ok = false
		fmt.Fprintf(w, format, args...)
	}
	slow := slices.Clone(r.results)
	slices.SortStableFunc(slow, func(a, b result) int { return cmp.Compare(b.Seconds, a.Seconds) })
	fmt.Fprintf(w, "\nthe slowest tests:\n")
	for _, res := range slow[:min(slowest, len(slow))] {
		fmt.Fprintf(w, "%8.1f s  %-10s %s %s\n", res.Seconds, res.Layer, testlist.Short(res.Package), res.Test)
	}
	fmt.Fprintln(w)
	for _, res := range r.results {
		line := fmt.Sprintf("%-10s %s %s", res.Layer, testlist.Short(res.Package), res.Test)
		if res.Reason != "" {
			line += ": " + res.Reason
		}
		switch {
		case res.Outcome == failed:
			complain("failed   %s\n", line)
		case res.Outcome == skipped && r.strict:
			complain("skipped  %s (no test may be skipped when CI or SPLITNIC_STRICT is set)\n", line)
		case res.Outcome == skipped:
			fmt.Fprintf(w, "skipped  %s\n", line)
		}
	}
	var total counts
	fmt.Fprintf(w, "%-10s %8s %8s %8s %10s\n", "layer", "passed", "failed", "skipped", "seconds")
	row := func(name string, c counts) {
		fmt.Fprintf(w, "%-10s %8d %8d %8d %10.1f\n", name, c.Passed, c.Failed, c.Skipped, c.Seconds)
	}
	for _, name := range r.names {
		c := r.layers[name]
		row(name, c)
		total.Passed += c.Passed
		total.Failed += c.Failed
		total.Skipped += c.Skipped
		total.Seconds += c.Seconds
	}
	row("total", total)
	for _, name := range r.names {
		if c := r.layers[name]; c.Passed+c.Failed == 0 {
			complain("the layer %s ran no test, which counts as a failure\n", name)
			total.Failed++
		}
	}
	for _, s := range r.shownOf {
		fmt.Fprintln(w, s)
	}
	if n := len(r.plan.long); n > 0 {
		fmt.Fprintf(w, "%d long tests were left to make test-all (%s)\n", n, testlist.LongPage)
	}
	for _, c := range r.wrong {
		complain("%s\n", c)
		total.Failed++
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", total.Passed, total.Failed, total.Skipped)
	return ok && len(r.names) > 0
}

// write writes test.json and tests.jsonl to a directory.
func (r *report) write(dir string) error {
	sums, err := json.MarshalIndent(r.layers, "", "  ")
	if err != nil {
		return err
	}
	var tests bytes.Buffer
	enc := json.NewEncoder(&tests)
	for _, res := range r.results {
		if err := enc.Encode(res); err != nil {
			return err
		}
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "test.json"), append(sums, '\n'), 0o666),
		os.WriteFile(filepath.Join(dir, "tests.jsonl"), tests.Bytes(), 0o666))
}

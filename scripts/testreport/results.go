package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"gotest.tools/gotestsum/testjson"

	"github.com/splitnic/splitnic/internal/errdoc"
	"github.com/splitnic/splitnic/internal/testlist"
)

// outcome is how a test ended.
type outcome string

// The outcomes.
const (
	passed  outcome = "pass"
	failed  outcome = "fail"
	skipped outcome = "skip"
)

// result is the result of a test that is counted. A test with subtests is counted only if its
// outcome is worse than that of its subtests.
type result struct {
	Layer   string  `json:"layer"`
	Package string  `json:"package"`
	Test    string  `json:"test"`
	Outcome outcome `json:"outcome"`
	Seconds float64 `json:"seconds"`
	Reason  string  `json:"reason,omitempty"` // why it was skipped
}

// explained collects the keys of errdoc.Page that each test has produced. It is a
// testjson.EventHandler.
type explained map[string][]string

func (x explained) Event(e testjson.TestEvent, _ *testjson.Execution) error {
	if e.Action == testjson.ActionAttr && e.Key == errdoc.Attribute {
		x[e.Test] = append(x[e.Test], e.Value)
	}
	return nil
}

// Err gets lines that are no events: testrun has printed them.
func (x explained) Err(string) error { return nil }

// readEvents returns the results of a layer from the file with its events.
func readEvents(file, layer string, explains explained) ([]result, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	run, err := testjson.ScanTestOutput(testjson.ScanConfig{Stdout: f, Handler: explains, IgnoreNonJSONOutputLines: true})
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	var results []result
	for _, name := range run.Packages() {
		results = append(results, packageResults(layer, name, run.Package(name))...)
	}
	// A package that ran again, because its guest was killed, has some results twice.
	seen := make(map[result]bool)
	return slices.DeleteFunc(results, func(r result) bool {
		r.Seconds, r.Reason = 0, ""
		defer func() { seen[r] = true }()
		return seen[r]
	}), nil
}

// packageResults returns the results of a package. One that fails although none of its tests
// failed counts as a failed test.
func packageResults(layer, name string, p *testjson.Package) []result {
	parents := make(map[string]bool)
	for _, tc := range p.TestCases() {
		parents[tc.Test.Parent()] = true
	}
	good := slices.DeleteFunc(slices.Clone(p.Passed), func(tc testjson.TestCase) bool { return parents[tc.Test.Name()] })
	bad := testjson.FilterFailedUnique(slices.Clone(p.Failed))
	outcomes := map[outcome][]testjson.TestCase{passed: good, failed: bad, skipped: p.Skipped}
	var results []result
	for _, o := range slices.Sorted(maps.Keys(outcomes)) {
		for _, tc := range outcomes[o] {
			res := result{
				Layer: layer, Package: name, Test: tc.Test.Name(), Outcome: o, Seconds: max(0, tc.Elapsed).Seconds(),
			}
			if o == skipped {
				res.Reason = reason(p.OutputLines(tc))
			}
			results = append(results, res)
		}
	}
	if p.Result() == testjson.ActionFail && len(bad) == 0 {
		results = append(results, result{Layer: layer, Package: name, Test: "(package)", Outcome: failed})
	}
	return results
}

// reason returns the message of a skipped test from its output.
func reason(output []string) string {
	var said []string
	for _, o := range output {
		o = strings.TrimSpace(o)
		if o == "" || strings.HasPrefix(o, "=== ") || strings.HasPrefix(o, "--- ") {
			continue
		}
		said = append(said, o)
	}
	return strings.Join(said, " ")
}

// topLevel returns the top-level test of a subtest, or the test itself.
func topLevel(test string) string {
	top, _, _ := strings.Cut(test, "/")
	return top
}

// plan has the tests that were to run, and those that were left out.
type plan struct {
	tests []planned
	names map[string]bool // of tests
	long  map[string]bool
}

// planned is a top-level test that was to run.
type planned struct{ layer, path, test string }

// read adds the plan of a layer, which testrun has written.
func (p *plan) read(text string) {
	if p.names == nil {
		p.names, p.long = make(map[string]bool), make(map[string]bool)
	}
	for line := range strings.Lines(text) {
		switch f := strings.Fields(line); {
		case len(f) == 4 && f[0] == "run":
			p.tests = append(p.tests, planned{f[1], f[2], f[3]})
			p.names[f[3]] = true
		case len(f) > 1 && f[0] == "long":
			p.long[strings.TrimSpace(strings.TrimPrefix(line, "long "))] = true
		}
	}
}

// has reports whether a test or subtest was to run.
func (p plan) has(test string) bool {
	for long := range p.long {
		if testlist.Covers(long, test) {
			return false
		}
	}
	return p.names[topLevel(test)]
}

// unseen returns a failed result for each test of a layer that was to run and did not: it is in a
// file that its layer does not build. If its package has failed for another reason, it is not known which
// tests would have run.
func (p plan) unseen(layer string, results []result) []result {
	ran, broken := make(map[planned]bool), make(map[planned]bool)
	for _, r := range results {
		ran[planned{r.Layer, r.Package, topLevel(r.Test)}] = true
		if r.Outcome == failed {
			broken[planned{r.Layer, r.Package, ""}] = true
		}
	}
	var missing []result
	for _, t := range p.tests {
		if t.layer == layer && !ran[t] && !broken[planned{t.layer, t.path, ""}] {
			missing = append(missing, result{
				Layer: t.layer, Package: t.path, Test: t.test, Outcome: failed, Reason: "it was not run",
			})
		}
	}
	return missing
}

// seconds returns the number in the file with the time that a layer took.
func seconds(file string) float64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	d, _ := time.ParseDuration(strings.TrimSpace(string(text)) + "s")
	return d.Seconds()
}

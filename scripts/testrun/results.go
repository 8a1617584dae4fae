package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"gotest.tools/gotestsum/testjson"

	"github.com/splitnic/splitnic/internal/errdoc"
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

// collector turns the events of one layer into results. It prints a line for each package, and
// all output of failed tests. Each go test that runs at the same time has a separate collector,
// whose results are added to the first one when go test has ended.
type collector struct {
	mu       *sync.Mutex // guards w, and results, explains and repeated of the first collector
	w        io.Writer
	layer    string
	results  []result
	explains map[string][]string // keys of errdoc.Page that each test produced
	repeated string              // which part of the layer ran twice, and why
}

func newCollector(w io.Writer, layer string) *collector {
	return &collector{mu: new(sync.Mutex), w: w, layer: layer, explains: make(map[string][]string)}
}

// another returns a collector for a part of the layer.
func (c *collector) another() *collector {
	part := newCollector(c.w, c.layer)
	part.mu = c.mu
	return part
}

// add adds the results of a part of the layer.
func (c *collector) add(part *collector) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.results = append(c.results, part.results...)
	for test, keys := range part.explains {
		c.explains[test] = append(c.explains[test], keys...)
	}
}

// read reads the output of go test -json from in, and adds the results of all its packages.
func (c *collector) read(in io.Reader) error {
	run, err := testjson.ScanTestOutput(testjson.ScanConfig{Stdout: in, Handler: c, IgnoreNonJSONOutputLines: true})
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range run.Packages() {
		// Tests that had not ended when their process died are known only now.
		if p := run.Package(name); p.Result() != testjson.ActionPass {
			c.end(name, p)
		}
	}
	return err
}

// Event prints failures and the ends of packages when they happen. Event and Err implement
// testjson.EventHandler.
func (c *collector) Event(e testjson.TestEvent, run *testjson.Execution) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := run.Package(e.Package)
	switch {
	case e.Action == testjson.ActionBuild:
		fmt.Fprint(c.w, e.Output)
	case e.Action == testjson.ActionAttr && e.Key == errdoc.Attribute:
		c.explains[e.Test] = append(c.explains[e.Test], e.Value)
	case e.Action == testjson.ActionFail && e.Test != "":
		fmt.Fprintf(c.w, "FAIL  %s %s\n", short(e.Package), e.Test)
		c.print(p.OutputLines(p.LastFailedByName(e.Test)))
	case e.Action == testjson.ActionPass && e.Test == "":
		c.end(e.Package, p)
	}
	return nil
}

// Err prints a line that is not an event.
func (c *collector) Err(text string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := fmt.Fprintln(c.w, text)
	return err
}

func (c *collector) print(lines []string) {
	for _, l := range lines {
		fmt.Fprint(c.w, "      ", l)
	}
}

// end counts a package's tests, and prints the line of the package. A package that fails
// although none of its tests failed counts as a failed test.
func (c *collector) end(pkg string, p *testjson.Package) {
	parents := make(map[string]bool)
	for _, tc := range p.TestCases() {
		parents[tc.Test.Parent()] = true
	}
	good := slices.DeleteFunc(slices.Clone(p.Passed), func(tc testjson.TestCase) bool { return parents[tc.Test.Name()] })
	bad := testjson.FilterFailedUnique(slices.Clone(p.Failed))
	outcomes := make(map[int]outcome)
	for o, tests := range map[outcome][]testjson.TestCase{passed: good, failed: bad, skipped: p.Skipped} {
		for _, tc := range tests {
			outcomes[tc.ID] = o
		}
	}
	all := slices.Concat(good, bad, p.Skipped)
	slices.SortFunc(all, func(a, b testjson.TestCase) int { return a.ID - b.ID })
	n := make(map[outcome]int)
	add := func(test string, o outcome, took time.Duration, reason string) {
		n[o]++
		c.results = append(c.results, result{
			Layer: c.layer, Package: pkg, Test: test, Outcome: o, Seconds: max(0, took).Seconds(), Reason: reason,
		})
	}
	for _, tc := range all {
		why := ""
		if outcomes[tc.ID] == skipped {
			why = reason(p.OutputLines(tc))
		}
		add(tc.Test.Name(), outcomes[tc.ID], tc.Elapsed, why)
	}
	if p.Result() == testjson.ActionFail {
		if len(bad) == 0 {
			add("(package)", failed, p.Elapsed(), "")
		}
		c.print(p.OutputLines(testjson.TestCase{})) // output that belongs to no test
	}
	c.line(pkg, n, p.Elapsed())
}

// line prints the line of a package. n has the number of tests by outcome.
func (c *collector) line(pkg string, n map[outcome]int, took time.Duration) {
	if len(n) == 0 {
		return
	}
	word, counts := "ok  ", fmt.Sprintf("%4d passed", n[passed])
	if n[failed] > 0 {
		word = "FAIL"
		counts += fmt.Sprintf(", %d failed", n[failed])
	}
	if n[skipped] > 0 {
		counts += fmt.Sprintf(", %d skipped", n[skipped])
	}
	fmt.Fprintf(c.w, "%s  %-36s %s %8.1f s\n", word, short(pkg), counts, took.Seconds())
}

// unseen counts each test of p that did not run, but was selected, as failed: the test is in a
// file that this layer does not build. If p has failed for another reason, it is not known
// which tests would have run, and unseen counts nothing.
func (c *collector) unseen(p testPackage) {
	ran := make(map[string]bool)
	for _, r := range c.results {
		if r.Package != p.path {
			continue
		}
		if r.Outcome == failed {
			return
		}
		ran[topLevel(r.Test)] = true
	}
	for _, name := range p.tests {
		if !ran[name] {
			fmt.Fprintf(c.w, "FAIL  %s %s: it was not run\n", short(p.path), name)
			c.results = append(c.results, result{Layer: c.layer, Package: p.path, Test: name, Outcome: failed})
		}
	}
}

// failed reports whether a test failed.
func (c *collector) failed() bool {
	return slices.ContainsFunc(c.results, func(r result) bool { return r.Outcome == failed })
}

// broken prints and counts a failure that belongs to no test.
func (c *collector) broken(what string, err error) {
	fmt.Fprintf(c.w, "FAIL  %s: %v\n", what, err)
	c.results = append(c.results, result{Layer: c.layer, Package: what, Test: "(run)", Outcome: failed})
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

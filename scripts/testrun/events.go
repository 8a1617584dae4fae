package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/splitnic/splitnic/internal/trouble"
)

// event is one line of what go test -json and go tool test2json print.
type event struct {
	Action     string
	Package    string
	Test       string
	Output     string
	Elapsed    float64 // seconds
	ImportPath string  // in place of Package when building
	Key, Value string  // of an attribute of the test
}

// outcome is how a test ended.
type outcome string

// The outcomes. A test that has not ended has none.
const (
	passed  outcome = "pass"
	failed  outcome = "fail"
	skipped outcome = "skip"
)

// result is one test that counts. A test with subtests does not, unless it
// ended worse than they did.
type result struct {
	Layer   string  `json:"layer"`
	Package string  `json:"package"`
	Test    string  `json:"test"`
	Outcome outcome `json:"outcome"`
	Seconds float64 `json:"seconds"`
	Reason  string  `json:"reason,omitempty"` // why it was skipped
}

// testState is what is known about a test that has begun.
type testState struct {
	name    string
	output  []string
	outcome outcome
	seconds float64
	parent  bool // has subtests
}

// packageState is what is known about a package whose tests run.
type packageState struct {
	tests  []*testState // in the order they began
	byName map[string]*testState
	output []string // of no test
}

// collector turns the events of one layer into results, and prints a line for
// each package and all a failed test wrote. Not for concurrent use.
type collector struct {
	w        io.Writer
	layer    string
	packages map[string]*packageState
	results  []result
	explains map[string][]string // messages of trouble.File that each test produced
}

func newCollector(w io.Writer, layer string) *collector {
	return &collector{w: w, layer: layer, packages: make(map[string]*packageState), explains: make(map[string][]string)}
}

// read handles every event in r, and prints lines that are none. It calls
// ended for the end of a package.
func (c *collector) read(r io.Reader, ended func(pkg string, o outcome, seconds float64)) error {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		var e event
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			fmt.Fprintln(c.w, s.Text())
			continue
		}
		if e.Test == "" && e.Package != "" && isEnd(e.Action) {
			ended(e.Package, outcome(e.Action), e.Elapsed)
			continue
		}
		c.event(e)
	}
	return s.Err()
}

func isEnd(action string) bool {
	o := outcome(action)
	return o == passed || o == failed || o == skipped
}

func (c *collector) event(e event) {
	if e.Action == "build-output" {
		fmt.Fprint(c.w, e.Output)
	}
	if e.Package == "" {
		return
	}
	p := c.packages[e.Package]
	if p == nil {
		p = &packageState{byName: make(map[string]*testState)}
		c.packages[e.Package] = p
	}
	if e.Test == "" {
		if e.Action == "output" {
			p.output = append(p.output, e.Output)
		}
		return
	}
	t := p.byName[e.Test]
	if t == nil {
		t = &testState{name: e.Test}
		p.byName[e.Test] = t
		p.tests = append(p.tests, t)
		if i := strings.LastIndexByte(e.Test, '/'); i >= 0 && p.byName[e.Test[:i]] != nil {
			p.byName[e.Test[:i]].parent = true
		}
	}
	switch {
	case e.Action == "attr" && e.Key == trouble.Attribute:
		c.explains[e.Test] = append(c.explains[e.Test], e.Value)
	case e.Action == "output":
		t.output = append(t.output, e.Output)
	case isEnd(e.Action):
		t.outcome, t.seconds = outcome(e.Action), e.Elapsed
		if t.outcome == failed {
			c.print(e.Package, t)
		}
		if t.outcome != skipped {
			t.output = nil
		}
	}
}

// print writes everything a test has printed.
func (c *collector) print(pkg string, t *testState) {
	fmt.Fprintf(c.w, "FAIL  %s %s\n", short(pkg), t.name)
	for _, o := range t.output {
		fmt.Fprint(c.w, "      ", o)
	}
}

// end counts a package's tests. A package that fails though none of its tests
// did counts as a failed test.
func (c *collector) end(pkg string, o outcome, seconds float64) {
	p := c.packages[pkg]
	delete(c.packages, pkg)
	if p == nil {
		p = &packageState{}
	}
	n := make(map[outcome]int)
	failedBelow := make(map[string]bool)
	var results []result
	// Subtests begin after their parents.
	for _, t := range slices.Backward(p.tests) {
		if t.outcome == "" { // the process ended first
			t.outcome = failed
			c.print(pkg, t)
		}
		if t.outcome == failed {
			for name := t.name; ; {
				i := strings.LastIndexByte(name, '/')
				if i < 0 {
					break
				}
				name = name[:i]
				failedBelow[name] = true
			}
		}
		if t.parent && (t.outcome == passed || failedBelow[t.name]) {
			continue
		}
		n[t.outcome]++
		r := result{Layer: c.layer, Package: pkg, Test: t.name, Outcome: t.outcome, Seconds: t.seconds}
		if t.outcome == skipped {
			r.Reason = reason(t.output)
		}
		results = append(results, r)
	}
	slices.Reverse(results)
	if o == failed && n[failed] == 0 {
		n[failed]++
		results = append(results, result{Layer: c.layer, Package: pkg, Test: "(package)", Outcome: failed, Seconds: seconds})
	}
	c.results = append(c.results, results...)
	if o == failed || n[failed] > 0 {
		for _, line := range p.output {
			fmt.Fprint(c.w, "      ", line)
		}
	}
	if len(results) == 0 {
		return
	}
	word := "ok  "
	if n[failed] > 0 {
		word = "FAIL"
	}
	fmt.Fprintf(c.w, "%s  %-36s %s %8.1f s\n", word, short(pkg), line(n), seconds)
}

// unseen counts each test of p that was to run and did not as a failed one: it
// is in a file that this layer does not build. Of a package that has failed
// anyway nobody knows.
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

// broken counts a failure that belongs to no test.
func (c *collector) broken(what string, err error) {
	fmt.Fprintf(c.w, "FAIL  %s: %v\n", what, err)
	c.results = append(c.results, result{Layer: c.layer, Package: what, Test: "(run)", Outcome: failed})
}

// reason returns what a skipped test said.
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

func line(n map[outcome]int) string {
	s := fmt.Sprintf("%4d passed", n[passed])
	if n[failed] > 0 {
		s += fmt.Sprintf(", %d failed", n[failed])
	}
	if n[skipped] > 0 {
		s += fmt.Sprintf(", %d skipped", n[skipped])
	}
	return s
}

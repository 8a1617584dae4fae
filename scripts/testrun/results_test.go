package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
)

// replay has a collector read lines of the output of go test -json. It returns a summary of the
// collector's results, and the collector's output.
func replay(t *testing.T, lines ...string) ([]string, string) {
	t.Helper()
	var out strings.Builder
	c := newCollector(&out, "unit")
	if err := c.read(strings.NewReader(strings.Join(lines, "\n"))); err != nil {
		t.Fatal(err)
	}
	return summary(c.results), out.String()
}

func summary(results []result) []string {
	var got []string
	for _, r := range results {
		got = append(got, strings.TrimSpace(string(r.Outcome)+" "+r.Test+" "+r.Reason))
	}
	return got
}

func TestCount(t *testing.T) {
	for _, tc := range []struct {
		name  string
		lines []string
		want  []string
	}{
		{"a test without subtests", []string{
			`{"Action":"run","Package":"p","Test":"TestA"}`,
			`{"Action":"pass","Package":"p","Test":"TestA"}`,
			`{"Action":"pass","Package":"p"}`,
		}, []string{"pass TestA"}},
		{"subtests count, not their parent", []string{
			`{"Action":"run","Package":"p","Test":"TestA"}`,
			`{"Action":"run","Package":"p","Test":"TestA/x"}`,
			`{"Action":"run","Package":"p","Test":"TestA/x/y"}`,
			`{"Action":"run","Package":"p","Test":"TestA/z"}`,
			`{"Action":"pass","Package":"p","Test":"TestA/x/y"}`,
			`{"Action":"pass","Package":"p","Test":"TestA/x"}`,
			`{"Action":"pass","Package":"p","Test":"TestA/z"}`,
			`{"Action":"pass","Package":"p","Test":"TestA"}`,
			`{"Action":"pass","Package":"p"}`,
		}, []string{"pass TestA/x/y", "pass TestA/z"}},
		{"a failure counts once", []string{
			`{"Action":"run","Package":"p","Test":"TestA"}`,
			`{"Action":"run","Package":"p","Test":"TestA/x"}`,
			`{"Action":"run","Package":"p","Test":"TestA/y"}`,
			`{"Action":"fail","Package":"p","Test":"TestA/x"}`,
			`{"Action":"pass","Package":"p","Test":"TestA/y"}`,
			`{"Action":"fail","Package":"p","Test":"TestA"}`,
			`{"Action":"fail","Package":"p"}`,
		}, []string{"fail TestA/x", "pass TestA/y"}},
		{"a parent may fail alone", []string{
			`{"Action":"run","Package":"p","Test":"TestA"}`,
			`{"Action":"run","Package":"p","Test":"TestA/x"}`,
			`{"Action":"pass","Package":"p","Test":"TestA/x"}`,
			`{"Action":"fail","Package":"p","Test":"TestA"}`,
			`{"Action":"fail","Package":"p"}`,
		}, []string{"fail TestA", "pass TestA/x"}},
		{"a skipped test says why", []string{
			`{"Action":"run","Package":"p","Test":"TestA"}`,
			`{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}`,
			`{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:7: no root here\n"}`,
			`{"Action":"output","Package":"p","Test":"TestA","Output":"--- SKIP: TestA (0.00s)\n"}`,
			`{"Action":"skip","Package":"p","Test":"TestA"}`,
			`{"Action":"pass","Package":"p"}`,
		}, []string{"skip TestA a_test.go:7: no root here"}},
		{"the process died in a test", []string{
			`{"Action":"run","Package":"p","Test":"TestA"}`,
			`{"Action":"pass","Package":"p","Test":"TestA"}`,
			`{"Action":"run","Package":"p","Test":"TestB"}`,
			`{"Action":"run","Package":"p","Test":"TestB/x"}`,
			`{"Action":"fail","Package":"p"}`,
		}, []string{"pass TestA", "fail TestB/x"}},
		{"the package failed, none of its tests did", []string{
			`{"Action":"run","Package":"p","Test":"TestA"}`,
			`{"Action":"pass","Package":"p","Test":"TestA"}`,
			`{"Action":"fail","Package":"p"}`,
		}, []string{"pass TestA", "fail (package)"}},
		{"it does not compile", []string{
			`{"ImportPath":"p [p.test]","Action":"build-output","Output":"p_test.go:1: oh\n"}`,
			`{"ImportPath":"p [p.test]","Action":"build-fail"}`,
			`{"Action":"start","Package":"p"}`,
			`{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}`,
		}, []string{"fail (package)"}},
		{"there are no tests", []string{
			`{"Action":"start","Package":"p"}`,
			`{"Action":"skip","Package":"p"}`,
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, _ := replay(t, tc.lines...)
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestOutput expects a collector to print the output that explains a failure, and not the
// output of a test that passed.
func TestOutput(t *testing.T) {
	_, out := replay(t,
		`a line of the go command`,
		`{"ImportPath":"q [q.test]","Action":"build-output","Output":"q_test.go:1: does not compile\n"}`,
		`{"Action":"run","Package":"p","Test":"TestGood"}`,
		`{"Action":"output","Package":"p","Test":"TestGood","Output":"said by the good\n"}`,
		`{"Action":"pass","Package":"p","Test":"TestGood"}`,
		`{"Action":"run","Package":"p","Test":"TestBad"}`,
		`{"Action":"output","Package":"p","Test":"TestBad","Output":"said by the bad\n"}`,
		`{"Action":"fail","Package":"p","Test":"TestBad"}`,
		`{"Action":"run","Package":"p","Test":"TestDead"}`,
		`{"Action":"output","Package":"p","Test":"TestDead","Output":"said by the dead\n"}`,
		`{"Action":"output","Package":"p","Output":"exit status 2\n"}`,
		`{"Action":"fail","Package":"p"}`,
	)
	for _, want := range []string{
		"a line of the go command", "q_test.go:1: does not compile", "said by the bad", "said by the dead", "exit status 2",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in:\n%s", want, out)
		}
	}
	if strings.Contains(out, "said by the good") {
		t.Errorf("the output of a test that passed is shown:\n%s", out)
	}
}

// TestProgramFails runs a package's tests by a program that may fail after them. A failure of
// the program has to count as a failure of the package.
func TestProgramFails(t *testing.T) {
	for _, tc := range []struct {
		name, then string
		want       string // the last result
	}{
		{"passes", "exit 0", "pass TestTestNames"},
		{"leaves something behind", "echo left behind: netns x; exit 1", "fail (package)"},
		{"dies before it can say", "kill -9 $$", "fail (package)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out strings.Builder
			r := &runner{collector: newCollector(&out, "softroce")}
			program := filepath.Join(t.TempDir(), "program")
			if err := os.WriteFile(program, []byte("#!/bin/bash\n\"$@\"\n"+tc.then+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			err := r.goTest(t.Context(), "", "-exec", "'"+program+"'", "-run", "^TestTestNames$", ".")
			if err != nil {
				t.Fatal(err)
			}
			got := summary(r.results)
			if len(got) == 0 || got[0] != "pass TestTestNames" || got[len(got)-1] != tc.want {
				t.Errorf("%q, want %q at the end", got, tc.want)
			}
			if said := strings.Contains(out.String(), "left behind: netns x"); said != strings.Contains(tc.then, "netns x") {
				t.Errorf("what the program said:\n%s", &out)
			}
		})
	}
}

// TestGoTestsBeside runs two parts of a layer at the same time, and expects the results of both.
func TestGoTestsBeside(t *testing.T) {
	var out strings.Builder
	r := &runner{collector: newCollector(&out, "softroce")}
	var two errgroup.Group
	for _, name := range []string{"TestTestNames", "TestChooseLayers"} {
		two.Go(func() error { return r.goTest(t.Context(), "", "-run", "^"+name+"$", ".") })
	}
	if err := two.Wait(); err != nil {
		t.Fatal(err)
	}
	got := summary(r.results)
	slices.Sort(got)
	if d := cmp.Diff([]string{"pass TestChooseLayers", "pass TestTestNames"}, got); d != "" {
		t.Errorf("%s\n%s", d, &out)
	}
}

// TestUnseen calls unseen with results in which tests of the package are missing. It expects a
// failure for each missing test, unless another test of the package failed.
func TestUnseen(t *testing.T) {
	p := testPackage{path: module + "/p", tests: []string{"TestA", "TestB", "TestC"}}
	of := func(pkg, test string, o outcome) result { return result{Package: pkg, Test: test, Outcome: o} }
	for _, tc := range []struct {
		name    string
		results []result
		want    []string // the results that unseen adds
	}{
		{"all have run", []result{of(p.path, "TestA", passed), of(p.path, "TestB/x", passed), of(p.path, "TestC", skipped)},
			nil},
		{"one has not", []result{of(p.path, "TestA", passed), of("q", "TestB", passed), of(p.path, "TestC", passed)},
			[]string{"fail TestB"}},
		{"the package has failed", []result{of(p.path, "TestA", failed)}, nil},
		{"none has", nil, []string{"fail TestA", "fail TestB", "fail TestC"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCollector(io.Discard, "netns")
			c.results = tc.results
			c.unseen(p)
			if d := cmp.Diff(tc.want, summary(c.results[len(tc.results):])); d != "" {
				t.Error(d)
			}
		})
	}
}

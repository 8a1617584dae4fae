package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// read reads events of a layer. It returns the results and the keys of errdoc.Page.
func read(t *testing.T, lines ...string) ([]result, explained) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "unit.jsonl")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	explains := make(explained)
	results, err := readEvents(file, "unit", explains)
	if err != nil {
		t.Fatal(err)
	}
	return results, explains
}

// summary returns a line for each result, sorted.
func summary(results []result) []string {
	var got []string
	for _, r := range results {
		got = append(got, strings.TrimSpace(string(r.Outcome)+" "+r.Test+" "+r.Reason))
	}
	slices.Sort(got)
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
		}, []string{"fail TestB/x", "pass TestA"}},
		{"the package failed, none of its tests did", []string{
			`{"Action":"run","Package":"p","Test":"TestA"}`,
			`{"Action":"pass","Package":"p","Test":"TestA"}`,
			`{"Action":"fail","Package":"p"}`,
		}, []string{"fail (package)", "pass TestA"}},
		{"it does not compile", []string{
			`{"ImportPath":"p [p.test]","Action":"build-output","Output":"p_test.go:1: oh\n"}`,
			`{"ImportPath":"p [p.test]","Action":"build-fail"}`,
			`{"Action":"start","Package":"p"}`,
			`{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}`,
		}, []string{"fail (package)"}},
		{"it ran again, because its guest was killed", []string{
			`{"Action":"run","Package":"p","Test":"TestA"}`,
			`{"Action":"pass","Package":"p","Test":"TestA","Elapsed":1}`,
			`{"Action":"run","Package":"p","Test":"TestB"}`,
			`{"Action":"run","Package":"p","Test":"TestA"}`,
			`{"Action":"pass","Package":"p","Test":"TestA","Elapsed":2}`,
			`{"Action":"run","Package":"p","Test":"TestB"}`,
			`{"Action":"pass","Package":"p","Test":"TestB","Elapsed":2}`,
			`{"Action":"pass","Package":"p"}`,
		}, []string{"pass TestA", "pass TestB"}},
		{"there are no tests", []string{
			`{"Action":"start","Package":"p"}`,
			`{"Action":"skip","Package":"p"}`,
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			results, _ := read(t, tc.lines...)
			got := summary(results)
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestUnseen reads a plan of three tests, and results in which some are missing. It expects a
// failure for each missing test, unless another test of the package failed.
func TestUnseen(t *testing.T) {
	var p plan
	p.read("run unit p TestA\nrun unit p TestB\nrun unit p TestC\nlong TestC/big ones\n")
	of := func(pkg, test string, o outcome) result {
		return result{Layer: "unit", Package: pkg, Test: test, Outcome: o}
	}
	for _, tc := range []struct {
		name    string
		results []result
		want    []string
	}{
		{"all have run", []result{of("p", "TestA", passed), of("p", "TestB/x", passed), of("p", "TestC", skipped)}, nil},
		{"one has not", []result{of("p", "TestA", passed), of("q", "TestB", passed), of("p", "TestC", passed)},
			[]string{"fail TestB it was not run"}},
		{"one has not, another was skipped", []result{of("p", "TestA", passed), of("p", "TestC", skipped)},
			[]string{"fail TestB it was not run"}},
		{"the package has failed", []result{of("p", "TestA", failed)}, nil},
		{"none has", nil, []string{"fail TestA it was not run", "fail TestB it was not run", "fail TestC it was not run"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if d := cmp.Diff(tc.want, summary(p.unseen("unit", tc.results))); d != "" {
				t.Error(d)
			}
		})
	}
	for test, want := range map[string]bool{
		"TestA": true, "TestA/x": true, "TestC": true, "TestC/big ones": false, "TestC/big ones/x": false, "TestC/big": true,
		"TestD": false,
	} {
		if got := p.has(test); got != want {
			t.Errorf("%s was to run: %t", test, got)
		}
	}
}

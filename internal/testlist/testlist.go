// Package testlist lists the tests of this module: by package, by layer, and those that take
// long. Nothing is built: a test is a function of a test file, and its name says of which layer
// it is.
package testlist

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Module is the path of this module.
const Module = "github.com/splitnic/splitnic"

// Layer is a set of tests that run in the same environment (docs/testing.md). The prefixes of
// their names say so; unit tests have none of them.
type Layer struct {
	Name     string
	Prefixes []string
}

// Layers has all layers, in the order in which they run.
var Layers = []Layer{
	{"unit", nil},
	{"netns", []string{"TestNetns"}},
	{"softroce", []string{"TestRDMA", "TestGuest"}},
	{"machines", []string{"TestMachines"}},
	{"faults", []string{"TestFaults"}},
	{"vm", []string{"TestVM"}},
	{"pods", []string{"TestPods"}},
	{"packages", []string{"TestPackages"}},
}

// LayerOf returns the name of the layer of a test.
func LayerOf(test string) string {
	for _, l := range Layers {
		if slices.ContainsFunc(l.Prefixes, func(prefix string) bool { return strings.HasPrefix(test, prefix) }) {
			return l.Name
		}
	}
	return "unit"
}

// Patterns returns what the flags -run and -skip of go test have to be for the tests of a layer in
// any package, without those that are listed as long. They are short: a test binary compiles them
// again for each subtest, which took longer than many tests when -run had all their names.
func Patterns(layer string, long []string) (run, skip string) {
	run = "."
	skipped := slices.DeleteFunc(slices.Clone(long), func(test string) bool { return LayerOf(test) != layer })
	for _, l := range Layers {
		if l.Name == layer && layer != "unit" {
			run = "^(" + strings.Join(l.Prefixes, "|") + ")"
		}
		for _, prefix := range l.Prefixes {
			if layer == "unit" {
				skipped = append(skipped, prefix+"*")
			}
		}
	}
	return run, Pattern(skipped)
}

// Package is a package that has tests.
type Package struct {
	Path, Dir string
	Tests     []string // names of the top-level tests, in order
	NoRace    []string // those that are run without the race detector
	Size      int      // of its source files and tests, in bytes: how long its tests may take
}

// Short returns the path of a package within the module.
func Short(path string) string { return strings.TrimPrefix(path, Module+"/") }

var (
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)
	noRace   = regexp.MustCompile(`(?m)^//go:build .*!race`)
	// goroutine matches what starts a goroutine, or has the tests of a package run at the same time.
	goroutine = regexp.MustCompile(`(?m)^\s*go |\.Go\(|\.Parallel\(\)|AfterFunc\(`)
)

// look returns the size of the source files in the directory of a package, and whether goroutines
// meet there: one of the files starts one. Elsewhere the race detector finds nothing.
func look(dir string) (size int, meet bool, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			return 0, false, err
		}
		size += len(src)
		meet = meet || goroutine.Match(src)
	}
	return size, meet, err
}

// Packages returns the packages that have wanted tests, the largest first. The working
// directory is the top of the checkout.
func Packages(ctx context.Context, wanted func(test string) bool) ([]Package, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-tags", "pods", "-f",
		"{{$p := .}}{{range .TestGoFiles}}{{$p.ImportPath}} {{$p.Dir}}/{{.}}\n{{end}}"+
			"{{range .XTestGoFiles}}{{$p.ImportPath}} {{$p.Dir}}/{{.}}\n{{end}}", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%v: %w", cmd.Args, err)
	}
	var packages []Package
	meet := false
	for line := range strings.Lines(string(out)) {
		path, file, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		src, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, m := range testFunc.FindAllSubmatch(src, -1) {
			name := string(m[1])
			if name == "TestMain" || !wanted(name) {
				continue
			}
			if n := len(packages); n == 0 || packages[n-1].Path != path {
				p := Package{Path: path, Dir: filepath.Dir(file)}
				if p.Size, meet, err = look(p.Dir); err != nil {
					return nil, err
				}
				packages = append(packages, p)
			}
			p := &packages[len(packages)-1]
			p.Tests = append(p.Tests, name)
			if noRace.Match(src) || !meet {
				p.NoRace = append(p.NoRace, name)
			}
		}
	}
	slices.SortStableFunc(packages, func(a, b Package) int { return cmp.Compare(b.Size, a.Size) })
	return packages, nil
}

// Divide divides packages into those whose tests are run with the race detector, those whose tests
// are run without it, and those of the former that have tests in files built without it: only these
// are their tests then.
func Divide(packages []Package) (race, plain, some []Package) {
	for _, p := range packages {
		noRace := Package{Path: p.Path, Tests: p.NoRace}
		isNoRace := func(test string) bool { return slices.Contains(p.NoRace, test) }
		if p.Tests = slices.DeleteFunc(slices.Clone(p.Tests), isNoRace); len(p.Tests) == 0 {
			plain = append(plain, noRace)
			continue
		}
		race = append(race, p)
		if len(p.NoRace) > 0 {
			some = append(some, noRace)
		}
	}
	return race, plain, some
}

// LongPage lists the tests that take long, relative to the top of the checkout: the code in the
// first column of the table below longHeading.
const (
	LongPage    = "docs/testing.md"
	longHeading = "### Long tests"
)

var quoted = regexp.MustCompile("`((?:Test|Fuzz)[^`]*)`")

// Long returns the tests that page, the text of LongPage, lists as long: names of top-level
// tests, and of subtests as Test/subtest.
func Long(page string) ([]string, error) {
	_, section, ok := strings.Cut(page, "\n"+longHeading+"\n")
	if !ok {
		return nil, fmt.Errorf("%s has no heading %q", LongPage, longHeading)
	}
	section, _, _ = strings.Cut(section, "\n#")
	var tests []string
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		first, _, _ := strings.Cut(line[1:], "|")
		for _, m := range quoted.FindAllStringSubmatch(first, -1) {
			tests = append(tests, m[1])
		}
	}
	return tests, nil
}

// Pattern returns a pattern for the flags -run and -skip of go test that matches exactly these
// tests and subtests. A * stands for any text in the name of a test or subtest. Names with the same
// parent are one alternative: a test binary compiles all of them again for each subtest.
func Pattern(tests []string) string {
	var parents, patterns []string
	names := map[string][]string{} // by parent
	for _, t := range tests {
		parts := strings.Split(t, "/")
		for i, part := range parts {
			parts[i] = strings.ReplaceAll(regexp.QuoteMeta(part), `\*`, ".*")
		}
		last := len(parts) - 1
		parent := ""
		for _, part := range parts[:last] {
			parent += "^" + part + "$/"
		}
		if names[parent] == nil {
			parents = append(parents, parent)
		}
		names[parent] = append(names[parent], parts[last])
	}
	for _, parent := range parents {
		patterns = append(patterns, parent+"^("+strings.Join(names[parent], "|")+")$")
	}
	return strings.Join(patterns, "|")
}

// Covers reports whether a long test, in which a * may be, is test or one of its parents.
func Covers(long, test string) bool {
	names, parts := strings.Split(test, "/"), strings.Split(long, "/")
	if len(names) < len(parts) {
		return false
	}
	for i, part := range parts {
		if ok, err := regexp.MatchString(Pattern([]string{part}), names[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

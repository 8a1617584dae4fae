package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// module is the prefix of every package's import path.
const module = "github.com/splitnic/splitnic"

// The prefix of a test's name says where the test runs. Tests without one of these prefixes
// are unit tests.
const (
	netnsPrefix    = "TestNetns"    // as root, in network namespaces
	rdmaPrefix     = "TestRDMA"     // as root, with RDMA devices
	guestPrefix    = "TestGuest"    // anywhere; they start guests themselves
	machinesPrefix = "TestMachines" // with two guests that a cable connects
	faultsPrefix   = "TestFaults"   // like TestMachines, but they take long
	vmPrefix       = "TestVM"       // as root, with virtual machines at cards
	podsPrefix     = "TestPods"     // as root, with container runtimes
	packagesPrefix = "TestPackages" // with RDMA devices and a clean root of Debian
)

// notUnit matches the names of tests that are not unit tests.
const notUnit = "^(" + netnsPrefix + "|" + rdmaPrefix + "|" + guestPrefix + "|" + machinesPrefix + "|" + faultsPrefix +
	"|" + vmPrefix + "|" + podsPrefix + "|" + packagesPrefix + ")"

// testPackage is a package of this module that has tests.
type testPackage struct {
	path   string   // import path
	tests  []string // names of the top-level tests
	noRace []string // names of the tests that are not built with the race detector
	guests int      // number of guests for its TestRDMA, from testdata/guests; 0 without the file
}

// short returns the import path within the module.
func short(path string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

// goPackage is a package in the output of go list.
type goPackage struct {
	ImportPath                string
	Dir                       string
	TestGoFiles, XTestGoFiles []string
}

// listPackages returns the packages that have tests.
func listPackages(ctx context.Context) ([]testPackage, error) {
	race, err := goList(ctx, "-race")
	if err != nil {
		return nil, err
	}
	raced := make(map[string]bool)
	for _, g := range race {
		for _, f := range g.testFiles() {
			raced[f] = true
		}
	}
	all, err := goList(ctx)
	if err != nil {
		return nil, err
	}
	var packages []testPackage
	for _, g := range all {
		p := testPackage{path: g.ImportPath}
		for _, f := range g.testFiles() {
			src, err := os.ReadFile(f)
			if err != nil {
				return nil, fmt.Errorf("looking for tests: %w", err)
			}
			names := testNames(src)
			p.tests = append(p.tests, names...)
			if !raced[f] {
				p.noRace = append(p.noRace, names...)
			}
		}
		if p.guests, err = guestsOf(g.Dir); err != nil {
			return nil, err
		}
		if len(p.tests) > 0 {
			packages = append(packages, p)
		}
	}
	return packages, nil
}

// guestsOf returns the number in the file testdata/guests of a package's directory.
func guestsOf(dir string) (int, error) {
	text, err := os.ReadFile(filepath.Join(dir, "testdata/guests"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("looking for the number of guests: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("the number of guests of %s: %w", dir, err)
	}
	return n, nil
}

// goList runs go list with flags, and returns every package of the module.
func goList(ctx context.Context, flags ...string) ([]goPackage, error) {
	args := append([]string{"list", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles"}, flags...)
	cmd := command(ctx, "go", append(args, "./...")...)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%v: %w", cmd.Args, err)
	}
	var packages []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var g goPackage
		if err := dec.Decode(&g); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading the output of go list: %w", err)
		}
		packages = append(packages, g)
	}
}

func (g goPackage) testFiles() []string {
	var files []string
	for _, f := range slices.Concat(g.TestGoFiles, g.XTestGoFiles) {
		files = append(files, filepath.Join(g.Dir, f))
	}
	return files
}

var testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)

// testNames returns the names of the tests in a file, in order.
func testNames(src []byte) []string {
	var names []string
	for _, m := range testFunc.FindAllSubmatch(src, -1) {
		if name := string(m[1]); name != "TestMain" {
			names = append(names, name)
		}
	}
	return names
}

// exactly returns a regular expression for -run that matches only names.
func exactly(names []string) string {
	return "^(" + strings.Join(names, "|") + ")$"
}

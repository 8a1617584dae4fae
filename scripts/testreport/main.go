// Command testreport judges the tests that testrun has run: it prints those that failed or were
// skipped, the slowest, a table of the layers, and at the end a line with the counts. It writes
// build/test.json, with the counts and seconds of each layer, and build/tests.jsonl, with a line
// for each test. It exits with status 1 in these cases:
//
//   - A test failed, or was to run and did not, or a layer ran no test.
//   - docs/claims, docs/security.md, docs/attacks.md or docs/troubleshooting.md names a test that
//     does not exist, or that was to run and did not pass.
//   - A test did not produce the message for which tests.txt names the test.
//   - A test was skipped, and CI or SPLITNIC_STRICT is set.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/splitnic/splitnic/internal/errdoc"
	"github.com/splitnic/splitnic/internal/testlist"
)

// eventsDir has what testrun has written.
const eventsDir = "build/events"

func main() {
	ok, err := run(os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func run(w io.Writer) (bool, error) {
	r := &report{layers: make(map[string]counts), explains: make(explained), strict: strict(os.Getenv)}
	for _, l := range testlist.Layers {
		file := filepath.Join(eventsDir, l.Name)
		text, err := os.ReadFile(file + ".plan")
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, err
		}
		r.plan.read(string(text))
		results, err := readEvents(file+".jsonl", l.Name, r.explains)
		if err != nil {
			return false, err
		}
		r.add(l.Name, results, seconds(file+".seconds"))
	}
	packages, err := testlist.Packages(context.Background(), func(string) bool { return true })
	if err != nil {
		return false, err
	}
	r.exists = func(test string) bool {
		return slices.ContainsFunc(packages, func(p testlist.Package) bool {
			return slices.ContainsFunc(p.Tests, func(t string) bool { return testlist.Covers(test, t) })
		})
	}
	if err := r.judgePages(); err != nil {
		return false, err
	}
	if err := r.write("build"); err != nil {
		return false, err
	}
	return r.print(w), nil
}

// strict reports whether a skipped test fails the run.
func strict(getenv func(string) string) bool {
	ci := getenv("CI")
	return getenv("SPLITNIC_STRICT") != "" || (ci != "" && ci != "false")
}

// judgePages checks all pages that name tests.
func (r *report) judgePages() error {
	pages, err := filepath.Glob(filepath.Join(claimsDir, "*.md"))
	if err != nil {
		return err
	}
	r.wrong = checkPages(pages)
	for _, d := range documents {
		doc, err := os.ReadFile(d.page())
		if err != nil {
			return err
		}
		r.shownOf = append(r.shownOf, d.count(parseClaims(d.page(), string(doc))))
		r.wrong = append(r.wrong, r.claims(d, string(doc))...)
	}
	for _, file := range defenceFiles {
		doc, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		r.wrong = append(r.wrong, r.defended(file, string(doc))...)
	}
	doc, err := os.ReadFile(errdoc.Page)
	if err != nil {
		return err
	}
	r.wrong = append(r.wrong, r.documented(errdoc.All(string(doc)), errdoc.Tests)...)
	page, err := os.ReadFile(testlist.LongPage)
	if err != nil {
		return err
	}
	long, err := testlist.Long(string(page))
	if err != nil {
		return err
	}
	for _, t := range long {
		if !r.exists(topLevel(t)) {
			r.wrong = append(r.wrong, fmt.Sprintf("%s: there is no test %s", testlist.LongPage, t))
		}
	}
	return nil
}

package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/splitnic/splitnic/internal/errdoc"
)

// claimsDir has a page NAME.md for each source document. The tables of a page say which tests
// show what the document claims and describes: each word in backquotes, anywhere in a row,
// that is the name of a test or a subtest. The last column of a row can say that something is
// missing.
const claimsDir = "docs/claims"

// sourceDocument is a document whose claims are shown by tests. The row of a claim begins with
// the number of the claim.
type sourceDocument struct {
	name   string
	claims int // number of claims
}

// documents are the source documents that have a page.
var documents = []sourceDocument{{"001", 22}, {"002", 16}, {"003", 0}, {"004", 24}}

// page returns the path of the document's page.
func (d sourceDocument) page() string { return filepath.Join(claimsDir, d.name+".md") }

// Prefixes of the last cell of a row that shows nothing, or only a part.
const (
	notHere = "not here: "
	inPart  = "in part: "
)

// defenceFiles are other pages, which name the tests of the defences against attacks.
var defenceFiles = []string{"docs/security.md", "docs/attacks.md"}

// claimRow is a row of a table on a page that names tests.
type claimRow struct {
	file  string
	name  string // the first cell
	line  int
	last  string // the last cell
	tests []string
}

var (
	tableRule = regexp.MustCompile(`^\|[ :|-]+\|$`)
	quoted    = regexp.MustCompile("`([^`]+)`")
	namedTest = regexp.MustCompile(`^(?:Test|Fuzz)\w+(/\S+)?$`)
)

// parseClaims returns the rows of the tables in doc, the text of file, without the headings. If
// columns are given, it leaves out tables whose last column has a different heading: they do
// not name tests.
func parseClaims(file, doc string, columns ...string) []claimRow {
	var rows []claimRow
	lines := strings.Split(doc, "\n")
	shows := len(columns) == 0
	for i, l := range lines {
		heading := i+1 < len(lines) && tableRule.MatchString(lines[i+1])
		if heading {
			cells := strings.Split(strings.Trim(l, "| "), "|")
			shows = len(columns) == 0 || slices.Contains(columns, strings.TrimSpace(cells[len(cells)-1]))
		}
		if !shows || !strings.HasPrefix(l, "|") || tableRule.MatchString(l) || heading {
			continue
		}
		cells := strings.Split(strings.TrimSuffix(strings.TrimSpace(l[1:]), "|"), "|")
		row := claimRow{file: file, name: strings.TrimSpace(cells[0]), line: i + 1,
			last: strings.TrimSpace(cells[len(cells)-1])}
		for _, m := range quoted.FindAllStringSubmatch(l, -1) {
			if namedTest.MatchString(m[1]) {
				row.tests = append(row.tests, m[1])
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// complaint returns an error message about the row, with its file and line.
func (r *claimRow) complaint(format string, args ...any) string {
	return fmt.Sprintf("%s:%d: ", r.file, r.line) + fmt.Sprintf(format, args...)
}

// says reports whether the row's last cell begins with word, and has more text after it.
func (r *claimRow) says(word string) bool {
	return strings.HasPrefix(r.last, word) && len(r.last) > len(word)
}

// check returns the errors in the rows of the document's page, without regard to test results.
// Each claim must have one row. Each row must either name a test on RDMA devices, or say why
// there is none.
func (d sourceDocument) check(rows []claimRow) []string {
	var wrong []string
	seen := make(map[int]bool)
	for _, r := range rows {
		if n, err := strconv.Atoi(r.name); err == nil {
			switch {
			case n < 1 || n > d.claims:
				wrong = append(wrong, r.complaint("there is no claim %d", n))
			case seen[n]:
				wrong = append(wrong, r.complaint("a second row for claim %d", n))
			}
			seen[n] = true
		}
		switch {
		case r.says(notHere) && len(r.tests) > 0:
			wrong = append(wrong, r.complaint("the row %q begins with %q and names tests", r.name, notHere))
		case r.says(notHere):
		case !slices.ContainsFunc(r.tests, func(t string) bool { return strings.HasPrefix(t, "TestRDMA") }):
			wrong = append(wrong, r.complaint("the row %q names no test on RDMA devices (%s…)", r.name, "TestRDMA"))
		}
	}
	for n := 1; n <= d.claims; n++ {
		if !seen[n] {
			wrong = append(wrong, fmt.Sprintf("%s: there is no row for claim %d", d.page(), n))
		}
	}
	return wrong
}

// count says how many of the document's claims are shown, in whole or in part, and how many are not.
func (d sourceDocument) count(rows []claimRow) string {
	whole, part, none := 0, 0, 0
	for _, r := range rows {
		if _, err := strconv.Atoi(r.name); err != nil {
			continue
		}
		switch {
		case r.says(notHere):
			none++
		case r.says(inPart):
			part++
		default:
			whole++
		}
	}
	return fmt.Sprintf("document %s: %d claims, %d shown, %d in part, %d not here", d.name, d.claims, whole, part, none)
}

// checkPages returns an error message for each of the files in claimsDir that is not the page
// of a document.
func checkPages(files []string) []string {
	var wrong []string
	for _, f := range files {
		if !slices.ContainsFunc(documents, func(d sourceDocument) bool { return d.page() == f }) {
			wrong = append(wrong, f+": the page of no document that scripts/testreport knows")
		}
	}
	return wrong
}

// claims returns the errors in doc, the text of a document's page.
func (r *report) claims(d sourceDocument, doc string) []string {
	rows := parseClaims(d.page(), doc)
	return append(d.check(rows), r.shown(rows)...)
}

// defended returns the errors in doc, the text of one of defenceFiles. Tables that name tests
// have a last column "test", and each of their rows names one.
func (r *report) defended(file, doc string) []string {
	var wrong []string
	rows := parseClaims(file, doc, "test")
	for _, row := range rows {
		if len(row.tests) == 0 {
			wrong = append(wrong, row.complaint("the row %q names no test", row.name))
		}
	}
	return append(wrong, r.shown(rows)...)
}

// shown returns an error message for each test that the rows name, and that does not exist or,
// if it was to run, did not pass.
func (r *report) shown(rows []claimRow) []string {
	var wrong []string
	for _, row := range rows {
		for _, t := range row.tests {
			if !r.exists(topLevel(t)) {
				wrong = append(wrong, row.complaint("the row %q names %s, which does not exist", row.name, t))
			}
			if !r.plan.has(t) {
				continue
			}
			if ended := r.ended(t); ended != "passed" {
				wrong = append(wrong, row.complaint("%s, which shows %q, %s", t, row.name, ended))
			}
		}
	}
	return wrong
}

// ended says how a test and its subtests ended.
func (r *report) ended(test string) string {
	n := make(map[outcome]int)
	for _, res := range r.results {
		if res.Test == test || strings.HasPrefix(res.Test, test+"/") {
			n[res.Outcome]++
		}
	}
	switch {
	case n[failed] > 0:
		return "failed"
	case n[skipped] > 0:
		return "was skipped"
	case n[passed] == 0:
		return "did not run"
	}
	return "passed"
}

// documented returns the errors in entries, those of errdoc.All, and tests, the text of
// errdoc.TestsFile, like claims. The errors include differences between entries and tests, tests
// that produced no message of their group, and messages that no test of their group produced.
func (r *report) documented(entries []errdoc.Entry, tests string) []string {
	produced := func(test, key string) bool {
		for name, keys := range r.explains {
			if (name == test || strings.HasPrefix(name, test+"/")) && slices.Contains(keys, key) {
				return true
			}
		}
		return false
	}
	groups := errdoc.ParseTests(tests)
	silent := make(map[string]bool) // keys of entries without a message
	for _, e := range entries {
		silent[e.Key] = e.Message == ""
	}
	wrong := errdoc.Check(entries, groups)
	var rows []claimRow
	for _, g := range groups {
		c := claimRow{file: errdoc.TestsFile, name: g.Keys[0], line: g.Line, tests: g.Tests}
		rows = append(rows, c)
		all := true // all tests of the group were to run
		for _, t := range g.Tests {
			if !r.plan.has(t) {
				all = false
				continue
			}
			if !silent[g.Keys[0]] && !slices.ContainsFunc(g.Keys, func(k string) bool { return produced(t, k) }) {
				wrong = append(wrong, c.complaint("%s produced nothing of %q", t, g.Keys))
			}
		}
		for _, k := range g.Keys {
			if len(g.Tests) > 0 && all && !silent[k] &&
				!slices.ContainsFunc(g.Tests, func(t string) bool { return produced(t, k) }) {
				wrong = append(wrong, c.complaint("no test of the group produced %q", k))
			}
		}
	}
	return slices.Concat(wrong, r.shown(rows))
}

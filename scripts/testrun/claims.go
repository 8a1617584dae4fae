package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// claimsDir has a page for each source document, NAME.md. Its tables say which
// tests show what the document claims and describes: the words in backquotes,
// anywhere in a row, that are names of tests, of subtests too. The last column of
// a row can say that something is missing.
const claimsDir = "docs/claims"

// sourceDocument is one whose claims are shown. The row of a claim begins with
// its number.
type sourceDocument struct {
	name   string
	claims int
}

// documents are the ones that have a page.
var documents = []sourceDocument{{"001", 22}, {"002", 16}, {"003", 0}, {"004", 24}}

// page is the document's.
func (d sourceDocument) page() string { return filepath.Join(claimsDir, d.name+".md") }

// How the last column of a row begins that shows nothing, or not all.
const (
	notHere = "not here: "
	inPart  = "in part: "
)

// defenceFiles are others, which say which tests show what is defended.
var defenceFiles = []string{"docs/security.md", "docs/attacks.md"}

// claimRow is a row of a table in such a document.
type claimRow struct {
	file  string
	name  string // what it begins with
	line  int
	last  string // its last cell
	tests []string
}

var (
	tableRule = regexp.MustCompile(`^\|[ :|-]+\|$`)
	quoted    = regexp.MustCompile("`([^`]+)`")
	namedTest = regexp.MustCompile(`^(?:Test|Fuzz)\w+(/\S+)?$`)
)

// parseClaims returns the rows of the tables in doc, the text of file, without
// their headings. Tables of which the last column has another heading than the
// ones given say nothing about tests; without any, all do.
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

// complaint is what is wrong with a row.
func (r *claimRow) complaint(format string, args ...any) string {
	return fmt.Sprintf("%s:%d: ", r.file, r.line) + fmt.Sprintf(format, args...)
}

// says reports whether the row's last cell begins with a word, and has something
// behind it.
func (r *claimRow) says(word string) bool {
	return strings.HasPrefix(r.last, word) && len(r.last) > len(word)
}

// check returns what is wrong with the rows of the document's page by themselves:
// every claim has one, and every row either names a test on RDMA devices or says
// why there is none.
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
		case !slices.ContainsFunc(r.tests, func(t string) bool { return strings.HasPrefix(t, rdmaPrefix) }):
			wrong = append(wrong, r.complaint("the row %q names no test on RDMA devices (%s…)", r.name, rdmaPrefix))
		}
	}
	for n := 1; n <= d.claims; n++ {
		if !seen[n] {
			wrong = append(wrong, fmt.Sprintf("%s: there is no row for claim %d", d.page(), n))
		}
	}
	return wrong
}

// shownClaims is how many claims of a document are shown.
type shownClaims struct {
	document          sourceDocument
	whole, part, none int // in whole, in part, and not
}

func (s shownClaims) String() string {
	return fmt.Sprintf("document %s: %d claims, %d shown, %d in part, %d not here",
		s.document.name, s.document.claims, s.whole, s.part, s.none)
}

// count counts the claims of the document's page.
func (d sourceDocument) count(rows []claimRow) shownClaims {
	n := shownClaims{document: d}
	for _, r := range rows {
		if _, err := strconv.Atoi(r.name); err != nil {
			continue
		}
		switch {
		case r.says(notHere):
			n.none++
		case r.says(inPart):
			n.part++
		default:
			n.whole++
		}
	}
	return n
}

// checkPages returns which of the files in claimsDir are of no document.
func checkPages(files []string) []string {
	var wrong []string
	for _, f := range files {
		if !slices.ContainsFunc(documents, func(d sourceDocument) bool { return d.page() == f }) {
			wrong = append(wrong, f+": the page of no document that scripts/testrun knows")
		}
	}
	return wrong
}

// checkExist returns which of the tests that the rows name do not exist.
func checkExist(rows []claimRow, packages []testPackage) []string {
	var wrong []string
	for _, r := range rows {
		for _, t := range r.tests {
			if !slices.ContainsFunc(packages, func(p testPackage) bool { return slices.Contains(p.tests, topLevel(t)) }) {
				wrong = append(wrong, r.complaint("the row %q names %s, which does not exist", r.name, t))
			}
		}
	}
	return wrong
}

// checkNamed returns the rows that name no test.
func checkNamed(rows []claimRow) []string {
	var wrong []string
	for _, r := range rows {
		if len(r.tests) == 0 {
			wrong = append(wrong, r.complaint("the row %q names no test", r.name))
		}
	}
	return wrong
}

// checkRan returns which of the tests that the rows name did not pass, of those
// that were demanded of this run.
func checkRan(rows []claimRow, demanded func(test string) bool, results []result) []string {
	var wrong []string
	for _, r := range rows {
		for _, t := range r.tests {
			if !demanded(topLevel(t)) {
				continue
			}
			n := make(map[outcome]int)
			for _, res := range results {
				if res.Test == t || strings.HasPrefix(res.Test, t+"/") {
					n[res.Outcome]++
				}
			}
			what := ""
			switch {
			case n[failed] > 0:
				what = "failed"
			case n[skipped] > 0:
				what = "was skipped"
			case n[passed] == 0:
				what = "did not run"
			default:
				continue
			}
			wrong = append(wrong, r.complaint("%s, which shows %q, %s", t, r.name, what))
		}
	}
	return wrong
}

// layerOf is the name of the layer that a test belongs to.
func layerOf(test string) string {
	switch {
	case strings.HasPrefix(test, netnsPrefix):
		return "netns"
	case strings.HasPrefix(test, rdmaPrefix), strings.HasPrefix(test, guestPrefix):
		return "softroce"
	case strings.HasPrefix(test, machinesPrefix):
		return "machines"
	case strings.HasPrefix(test, faultsPrefix):
		return "faults"
	case strings.HasPrefix(test, vmPrefix):
		return "vm"
	case strings.HasPrefix(test, podsPrefix):
		return "pods"
	case strings.HasPrefix(test, packagesPrefix):
		return "packages"
	default:
		return "unit"
	}
}

// claims returns what is wrong with doc, the text of a document's page, after the
// layers with these names have run: tests of other layers, and those that the
// user excluded, are not demanded.
func (r *runner) claims(d sourceDocument, doc string, layers []string, results []result) []string {
	rows := parseClaims(d.page(), doc)
	return append(d.check(rows), r.shown(rows, layers, results)...)
}

// defended is claims for the text of one of defenceFiles. Its tables about tests
// have a last column "test".
func (r *runner) defended(file, doc string, layers []string, results []result) []string {
	rows := parseClaims(file, doc, "test")
	return append(checkNamed(rows), r.shown(rows, layers, results)...)
}

// shown returns which of the tests that the rows name do not exist, or did not
// pass.
func (r *runner) shown(rows []claimRow, layers []string, results []result) []string {
	demanded := func(test string) bool { return slices.Contains(layers, layerOf(test)) && r.wants(test) }
	return append(checkExist(rows, r.packages), checkRan(rows, demanded, results)...)
}

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// claimsFile is a document whose tables say which tests show what the seed
// claims and describes. A row's tests are the words in backquotes, anywhere in
// it, that are names of tests, of subtests too.
const claimsFile = "docs/claims.md"

// seedClaims is how many claims the seed has. The row of a claim begins with
// its number.
const seedClaims = 22

// claimRow is a row of a table in claimsFile.
type claimRow struct {
	name  string // what it begins with
	line  int
	tests []string
}

var (
	tableRule = regexp.MustCompile(`^\|[ :|-]+\|$`)
	quoted    = regexp.MustCompile("`([^`]+)`")
	namedTest = regexp.MustCompile(`^Test\w+(/\S+)?$`)
)

// parseClaims returns the rows of the tables in doc, without their headings.
func parseClaims(doc string) []claimRow {
	var rows []claimRow
	lines := strings.Split(doc, "\n")
	for i, l := range lines {
		heading := i+1 < len(lines) && tableRule.MatchString(lines[i+1])
		if !strings.HasPrefix(l, "|") || tableRule.MatchString(l) || heading {
			continue
		}
		first, _, _ := strings.Cut(l[1:], "|")
		row := claimRow{name: strings.TrimSpace(first), line: i + 1}
		for _, m := range quoted.FindAllStringSubmatch(l, -1) {
			if namedTest.MatchString(m[1]) {
				row.tests = append(row.tests, m[1])
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// topLevel is the test that a subtest belongs to, or the test itself.
func topLevel(test string) string {
	top, _, _ := strings.Cut(test, "/")
	return top
}

// checkRows returns what is wrong with the rows by themselves: every claim of
// the seed has one, every row names a test on RDMA devices, and every test that
// is named exists.
func checkRows(rows []claimRow, packages []testPackage) []string {
	var wrong []string
	complain := func(line int, format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf("%s:%d: ", claimsFile, line)+fmt.Sprintf(format, args...))
	}
	seen := make(map[int]bool)
	for _, r := range rows {
		if n, err := strconv.Atoi(r.name); err == nil {
			switch {
			case n < 1 || n > seedClaims:
				complain(r.line, "there is no claim %d", n)
			case seen[n]:
				complain(r.line, "a second row for claim %d", n)
			}
			seen[n] = true
		}
		if !slices.ContainsFunc(r.tests, func(t string) bool { return strings.HasPrefix(t, rdmaPrefix) }) {
			complain(r.line, "the row %q names no test on RDMA devices (%s…)", r.name, rdmaPrefix)
		}
		for _, t := range r.tests {
			if !slices.ContainsFunc(packages, func(p testPackage) bool { return slices.Contains(p.tests, topLevel(t)) }) {
				complain(r.line, "the row %q names %s, which does not exist", r.name, t)
			}
		}
	}
	for n := 1; n <= seedClaims; n++ {
		if !seen[n] {
			wrong = append(wrong, fmt.Sprintf("%s: there is no row for claim %d", claimsFile, n))
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
			wrong = append(wrong, fmt.Sprintf("%s:%d: %s, which shows %q, %s", claimsFile, r.line, t, r.name, what))
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
	default:
		return "unit"
	}
}

// claims returns what is wrong with doc, the text of claimsFile, after the
// layers with these names have run: tests of other layers, and those that the
// user excluded, are not demanded.
func (r *runner) claims(doc string, layers []string, results []result) []string {
	rows := parseClaims(doc)
	demanded := func(test string) bool { return slices.Contains(layers, layerOf(test)) && r.wants(test) }
	return append(checkRows(rows, r.packages), checkRan(rows, demanded, results)...)
}

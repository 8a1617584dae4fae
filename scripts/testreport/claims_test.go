package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/testlist"
)

// tested is the document of these tests.
var tested = sourceDocument{"001", 22}

// claimsDoc returns a page with a row for each claim of the document. change replaces rows, by
// the number of the claim; an empty string removes the row.
func claimsDoc(change map[int]string) string {
	lines := []string{"# Claims", "", "| claim | what | test |", "|---|:---|---|"}
	for n := 1; n <= tested.claims; n++ {
		row, changed := change[n]
		switch {
		case !changed:
			lines = append(lines, fmt.Sprintf("| %d | `bufpool` does it | `TestRDMAClaim%02d`, `TestClaim%02d` |", n, n, n))
		case row != "":
			lines = append(lines, row)
		}
	}
	lines = append(lines, "", "| figure | what | test |", "|---|---|---|",
		"| figure 2 | two hosts | `TestRDMAHosts/two_of_them` |", "")
	return strings.Join(lines, "\n")
}

// claimsRun returns all tests of claimsDoc, and results in which these tests
// passed.
func claimsRun() (tests []string, results []result) {
	pass := func(layer, test string) {
		results = append(results, result{Layer: layer, Package: "p", Test: test, Outcome: passed})
	}
	tests = []string{"TestOther", "TestRDMAHosts"}
	for n := 1; n <= tested.claims; n++ {
		unit, rdma := fmt.Sprintf("TestClaim%02d", n), fmt.Sprintf("TestRDMAClaim%02d", n)
		tests = append(tests, unit, rdma)
		pass("unit", unit)
		pass("softroce", rdma+"/one")
		pass("softroce", rdma+"/other")
	}
	pass("softroce", "TestRDMAHosts/two_of_them")
	return tests, results
}

// reportOf returns a report of a run of layers with these tests and results.
func reportOf(tests, layers []string, filter string, results []result) *report {
	wanted := regexp.MustCompile(filter)
	var text strings.Builder
	for _, test := range tests {
		if slices.Contains(layers, testlist.LayerOf(test)) && wanted.MatchString(test) {
			fmt.Fprintf(&text, "run %s p %s\n", testlist.LayerOf(test), test)
		}
	}
	r := &report{exists: func(test string) bool { return slices.Contains(tests, test) }, results: results}
	r.plan.read(text.String())
	return r
}

func TestClaims(t *testing.T) {
	fail := func(results []result, test string, o outcome) []result {
		for i := range results {
			if results[i].Test == test {
				results[i].Outcome = o
			}
		}
		return results
	}
	drop := func(results []result, prefix string) []result {
		var rest []result
		for _, r := range results {
			if !strings.HasPrefix(r.Test, prefix) {
				rest = append(rest, r)
			}
		}
		return rest
	}
	all := []string{"unit", "netns", "softroce"}
	for _, tc := range []struct {
		name   string
		change map[int]string
		run    func([]result) []result
		layers []string
		filter string
		want   string // a part of the only complaint; empty: no complaint
	}{
		{name: "all is well", layers: all},
		{name: "a row is missing", change: map[int]string{7: ""}, layers: all, want: "there is no row for claim 7"},
		{name: "a row is missing in a run of one layer", change: map[int]string{7: ""}, layers: []string{"unit"},
			want: "there is no row for claim 7"},
		{name: "a row twice", change: map[int]string{8: "| 8 | `TestRDMAClaim08` |\n| 8 | `TestRDMAClaim08` |"}, layers: all,
			want: "docs/claims/001.md:13: a second row for claim 8"},
		{name: "a claim too many", change: map[int]string{22: "| 22 | `TestRDMAClaim22` |\n| 23 | `TestRDMAClaim22` |"},
			layers: all, want: "there is no claim 23"},
		{name: "a row without a test", change: map[int]string{3: "| 3 | nobody knows |"}, layers: all,
			want: `the row "3" names no test on RDMA devices`},
		{name: "a row with unit tests only", change: map[int]string{3: "| 3 | `TestClaim03` |"}, layers: all,
			want: `the row "3" names no test on RDMA devices`},
		{name: "a row that is not here", change: map[int]string{3: "| 3 | | not here: nobody knows |"}, layers: all},
		{name: "a row that is not here, without a reason", change: map[int]string{3: "| 3 | | not here: |"}, layers: all,
			want: `the row "3" names no test on RDMA devices`},
		{name: "a row that is not here, with a test", layers: all,
			change: map[int]string{3: "| 3 | | not here: but `TestRDMAClaim03` |"},
			want:   `begins with "not here: " and names tests`},
		{name: "a row that is there in part", layers: all,
			change: map[int]string{3: "| 3 | | in part: no more: `TestRDMAClaim03` |"}},
		{name: "a row that is there in part, with unit tests only", layers: all,
			change: map[int]string{3: "| 3 | | in part: no more: `TestClaim03` |"},
			want:   `the row "3" names no test on RDMA devices`},
		{name: "a test that does not exist", change: map[int]string{4: "| 4 | `TestRDMAClaim04`, `TestNetnsClaim44` |"},
			layers: []string{"unit"}, want: "names TestNetnsClaim44, which does not exist"},
		{name: "a test that did not run", run: func(r []result) []result { return drop(r, "TestRDMAClaim05") }, layers: all,
			want: `TestRDMAClaim05, which shows "5", did not run`},
		{name: "a subtest that did not run", run: func(r []result) []result { return drop(r, "TestRDMAHosts") }, layers: all,
			want: `TestRDMAHosts/two_of_them, which shows "figure 2", did not run`},
		{name: "a test that failed", run: func(r []result) []result { return fail(r, "TestClaim06", failed) }, layers: all,
			want: `TestClaim06, which shows "6", failed`},
		{name: "a subtest failed", run: func(r []result) []result { return fail(r, "TestRDMAClaim06/other", failed) },
			layers: all, want: `TestRDMAClaim06, which shows "6", failed`},
		{name: "a test was skipped", run: func(r []result) []result { return fail(r, "TestRDMAClaim06/one", skipped) },
			layers: all, want: `TestRDMAClaim06, which shows "6", was skipped`},
		{name: "a layer was not to run", run: func(r []result) []result { return drop(r, "TestRDMA") },
			layers: []string{"unit", "netns"}},
		{name: "another layer ran only", run: func(r []result) []result { return drop(r, "TestClaim") },
			layers: []string{"softroce"}},
		{name: "some tests were not to run", run: func(r []result) []result { return drop(drop(r, "TestRDMA"), "TestClaim") },
			layers: all, filter: "TestOther"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tests, results := claimsRun()
			if tc.run != nil {
				results = tc.run(results)
			}
			got := reportOf(tests, tc.layers, tc.filter, results).claims(tested, claimsDoc(tc.change))
			if tc.want == "" && len(got) > 0 || tc.want != "" && (len(got) != 1 || !strings.Contains(got[0], tc.want)) {
				t.Errorf("want %q, got %q", tc.want, got)
			}
		})
	}
}

// TestClaimsWholeNames expects that the result of a test does not count for another test whose
// name is the beginning of its name.
func TestClaimsWholeNames(t *testing.T) {
	rows := parseClaims("f", "| 1 | `TestRDMAPing` |")
	results := []result{{Test: "TestRDMAPingFlood", Outcome: passed}}
	if got := reportOf([]string{"TestRDMAPing"}, []string{"softroce"}, "", results).shown(rows); len(got) != 1 {
		t.Errorf("%q", got)
	}
}

func TestSecurityTables(t *testing.T) {
	doc := func(rows ...string) string {
		return "| attacker | has |\n|---|---|\n| a station | a cable |\n\n| threat | defence | test |\n|---|---|---|\n" +
			strings.Join(rows, "\n") + "\n"
	}
	good := "| theft | a lock | `TestClaim01`, `TestRDMAClaim02` |"
	for _, tc := range []struct {
		name, doc string
		drop      string
		want      string
	}{
		{name: "all is well", doc: doc(good)},
		{name: "no test", doc: doc(good, "| noise | ear plugs | |"),
			want: `docs/security.md:8: the row "noise" names no test`},
		{name: "no such test", doc: doc("| noise | ear plugs | `TestNetnsPlugs` |"),
			want: "names TestNetnsPlugs, which does not exist"},
		{name: "a test that did not run", doc: doc(good), drop: "TestClaim01",
			want: `TestClaim01, which shows "theft", did not run`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tests, results := claimsRun()
			results = slices.DeleteFunc(results, func(r result) bool { return r.Test == tc.drop })
			got := reportOf(tests, []string{"unit", "softroce"}, "", results).defended("docs/security.md", tc.doc)
			if tc.want == "" && len(got) > 0 || tc.want != "" && (len(got) != 1 || !strings.Contains(got[0], tc.want)) {
				t.Errorf("want %q, got %q", tc.want, got)
			}
		})
	}
}

// TestClaimsOfEachDocument checks the rows of one document as those of another document with two
// claims more, and expects complaints about these two. A page without a document also has to
// be reported.
func TestClaimsOfEachDocument(t *testing.T) {
	tests, results := claimsRun()
	r := reportOf(tests, []string{"unit", "softroce"}, "", results)
	got := r.claims(sourceDocument{"004", 24}, claimsDoc(nil))
	if !slices.Equal(got, []string{"docs/claims/004.md: there is no row for claim 23",
		"docs/claims/004.md: there is no row for claim 24"}) {
		t.Errorf("%q", got)
	}
	if got := checkPages([]string{"docs/claims/001.md", "docs/claims/009.md"}); len(got) != 1 ||
		!strings.Contains(got[0], "docs/claims/009.md: the page of no document") {
		t.Errorf("%q", got)
	}
}

// TestClaimsCounted expects the report to say how many claims of a document are shown.
func TestClaimsCounted(t *testing.T) {
	n := tested.count(parseClaims(tested.page(), claimsDoc(map[int]string{
		3: "| 3 | | not here: nobody knows |", 5: "| 5 | | not here: nor this |",
		7: "| 7 | | in part: no more: `TestRDMAClaim07` |",
	})))
	const want = "document 001: 22 claims, 19 shown, 1 in part, 2 not here"
	if n != want {
		t.Errorf("%s, want %s", n, want)
	}
	r := report{shownOf: []string{n}}
	var out strings.Builder
	if r.print(&out); !strings.Contains(out.String(), want+"\n") {
		t.Error(out.String())
	}
}

// TestReportClaims expects an error in the claims to be printed, and to fail the run.
func TestReportClaims(t *testing.T) {
	r := report{layers: map[string]counts{}, wrong: []string{"docs/claims/001.md: there is no row for claim 7"}}
	r.add("unit", []result{{Layer: "unit", Package: "p", Test: "TestA", Outcome: passed}}, 1)
	var out strings.Builder
	ok := r.print(&out)
	if s := out.String(); ok || !strings.Contains(s, "there is no row for claim 7\n") ||
		!strings.HasSuffix(s, "\n1 passed, 1 failed, 0 skipped\n") {
		t.Errorf("ok is %t:\n%s", ok, s)
	}
}

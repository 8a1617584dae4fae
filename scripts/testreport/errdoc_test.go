package main

import (
	"cmp"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/errdoc"
)

const errdocPage = `
| message | status | fix |
|---|---|---|
| ` + "`no card <name>`" + ` | 3 | |

` + "```messages\nbusy\nfull\n```" + `

| symptom | fix |
|---|---|
| slow | |
`

const errdocTests = `# tests
3 no card <name>
	TestMistakes/no_card
- busy
- full
	TestRDMABusy
	TestFull
symptom slow
	TestRDMASlow
`

func TestErrdoc(t *testing.T) {
	tests := []string{"TestMistakes", "TestRDMABusy", "TestFull", "TestRDMASlow"}
	const card = "3 no card <name>"
	for _, tc := range []struct {
		name        string
		page, tests string              // if set, in place of errdocPage and errdocTests
		change      func([]result)      // changes the results
		said        map[string][]string // keys that tests produced; nil: the right ones
		layers      []string            // layers that ran; nil: all
		filter      string
		want        []string // a part of each complaint
	}{
		{name: "all is well"},
		{name: "a message without tests", page: errdocPage + "\n| message |\n|---|\n| `x` |\n",
			want: []string{`"- x" is not in internal/errdoc/tests.txt`}},
		{name: "tests without a message", tests: errdocTests + "- x\n\tTestFull\n",
			want: []string{`"- x" is in neither docs/troubleshooting.md`, "TestFull produced nothing",
				"no test of the group produced \"- x\""}},
		{name: "no test", tests: strings.Replace(errdocTests, "\tTestRDMASlow\n", "", 1),
			want: []string{`"symptom slow" has no test`}},
		{name: "no such test", tests: strings.Replace(errdocTests, "TestRDMASlow", "TestNone", 1),
			want: []string{"which does not exist"}},
		{name: "a test failed", change: func(r []result) { r[0].Outcome = failed }, want: []string{"failed"}},
		{name: "a test of a symptom failed", change: func(r []result) { r[3].Outcome = failed },
			want: []string{"TestRDMASlow"}},
		{name: "another message", said: map[string][]string{"TestMistakes/no_card": {"- busy"}, "TestRDMABusy": {"- busy"},
			"TestFull": {"- full"}},
			want: []string{"TestMistakes/no_card produced nothing", `produced "3 no card <name>"`}},
		{name: "another status", said: map[string][]string{"TestMistakes/no_card": {"2 no card <name>"},
			"TestRDMABusy": {"- busy"}, "TestFull": {"- full"}},
			want: []string{"TestMistakes/no_card produced nothing", `produced "3 no card <name>"`}},
		{name: "one test has both", said: map[string][]string{"TestMistakes/no_card": {card},
			"TestRDMABusy/all": {"- busy", "- full"}},
			want: []string{"TestFull produced nothing"}},
		{name: "one message is left", said: map[string][]string{"TestMistakes/no_card": {card}, "TestRDMABusy": {"- busy"},
			"TestFull": {"- busy"}},
			want: []string{`produced "- full"`}},
		{name: "a layer was not to run", said: map[string][]string{"TestMistakes/no_card": {card}, "TestFull": {"- full"}},
			layers: []string{"unit", "netns"}},
		{name: "some tests were not to run", said: map[string][]string{"TestRDMABusy": {"- busy"}}, filter: "Busy"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			page, named, said, layers := cmp.Or(tc.page, errdocPage), cmp.Or(tc.tests, errdocTests), tc.said, tc.layers
			if said == nil {
				said = map[string][]string{"TestMistakes/no_card": {card}, "TestRDMABusy": {"- busy"}, "TestFull": {"- full"}}
			}
			if layers == nil {
				layers = []string{"unit", "netns", "softroce"}
			}
			results := []result{{Test: "TestMistakes/no_card"}, {Test: "TestRDMABusy"}, {Test: "TestFull"},
				{Test: "TestRDMASlow"}}
			for i := range results {
				results[i].Outcome = passed
			}
			if tc.change != nil {
				tc.change(results)
			}
			r := reportOf(tests, layers, tc.filter, results)
			r.explains = said
			got := r.documented(errdoc.Parse(errdoc.Page, page), named)
			if len(got) != len(tc.want) {
				t.Fatalf("want %q, got %q", tc.want, got)
			}
			for i, w := range tc.want {
				if !strings.Contains(got[i], w) {
					t.Errorf("want %q, got %q", w, got[i])
				}
			}
		})
	}
}

// TestAttributes reads events with attributes of a test, and expects the key of the errdoc
// attribute, and no other attribute.
func TestAttributes(t *testing.T) {
	_, explains := read(t,
		`{"Action":"run","Package":"p","Test":"TestA"}`,
		`{"Action":"run","Package":"p","Test":"TestA/x"}`,
		`{"Action":"attr","Package":"p","Test":"TestA/x","Key":"errdoc","Value":"3 no card <name>"}`,
		`{"Action":"attr","Package":"p","Test":"TestA/x","Key":"other","Value":"busy"}`,
		`{"Action":"pass","Package":"p","Test":"TestA/x"}`,
		`{"Action":"pass","Package":"p","Test":"TestA"}`,
		`{"Action":"pass","Package":"p"}`,
	)
	if got := explains["TestA/x"]; len(explains) != 1 || len(got) != 1 || got[0] != "3 no card <name>" {
		t.Errorf("%q", explains)
	}
}

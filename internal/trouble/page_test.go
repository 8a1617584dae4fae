package trouble

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const page = "# A page\n\ntext with `code`\n\n" +
	"| message | status | cause | cure | test |\n|---|---|---|---|---|\n" +
	"| `--queues <n>: must be 1 to <most>` | 2 | a `typo` | `--queues 4` | `TestA/queues`, `TestB` |\n" +
	"| ``see `splitnic --help` `` or `a \\| b` | 2 | | | `TestC` and not `build/x` |\n\n" +
	"| symptom | how | test |\n|:---|---|---|\n| `ping` works | x | `TestD` |\n\n" +
	"| name | test |\n|---|---|\n| `busy` | `TestE` |\n"

func TestParse(t *testing.T) {
	want := []Row{
		{Name: "`--queues <n>: must be 1 to <most>`", Line: 7, Status: 2, Messages: []string{"--queues <n>: must be 1 to <most>"}, Tests: []string{"TestA/queues", "TestB"}},
		{Name: "``see `splitnic --help` `` or `a | b`", Line: 8, Status: 2, Messages: []string{"see `splitnic --help` ", "a | b"}, Tests: []string{"TestC"}},
		{Name: "`ping` works", Line: 12, Status: NoStatus, Tests: []string{"TestD"}},
		{Name: "`busy`", Line: 16, Status: NoStatus, Messages: []string{"busy"}, Tests: []string{"TestE"}},
	}
	if d := cmp.Diff(want, Parse(page)); d != "" {
		t.Error(d)
	}
}

func TestCode(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"none", nil},
		{"`a` and `b c`", []string{"a", "b c"}},
		{"`` `a` ``", []string{"`a`"}},
		{"``a ` b``", []string{"a ` b"}},
		{"`open", nil},
		{"`a` ``open`", []string{"a"}},
	} {
		if d := cmp.Diff(c.want, code(c.text)); d != "" {
			t.Errorf("%s: %s", c.text, d)
		}
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		message, text string
		want          bool
	}{
		{"plain (text).", "plain (text).", true},
		{"plain.", "plainly", false},
		{"--mac: <why>", "--mac: no\nat all", true},
		{"--mac: <why>", "--mac: ", false},
		{"<doing>: gone", "it is: gone", true},
		{"<doing>: gone", "it is: gone now", false},
		{"must be < <n>", "must be < 5", true},
		{"<n> of <m> failed", "1 of 7 failed", true},
		{"<n> of <m> failed", " of  failed", false},
		{"<n>, <m>", "1, ", false},
		{"a <n> a", "a a", false},
		{"<n> a <m> a", "1 a a a", true},
		{"<one> <two>", "only", false},
	} {
		if got := Matches(c.message, c.text); got != c.want {
			t.Errorf("%q, %q: %t", c.message, c.text, got)
		}
	}
}

// A message of nothing but placeholders would explain everything.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../" + File)
	if err != nil {
		t.Fatal(err)
	}
	rows := Parse(string(page))
	if len(rows) < 100 {
		t.Errorf("%d rows in %s", len(rows), File)
	}
	for _, r := range rows {
		for _, m := range r.Messages {
			if said := placeholder.ReplaceAllString(m, ""); said != m && len(strings.Trim(said, ": ")) < 6 {
				t.Errorf("%s:%d: %q is too vague", File, r.Line, m)
			}
		}
	}
}

func TestExplain(t *testing.T) {
	rows := Parse(page)
	for _, c := range []struct {
		status int
		text   string
		want   []string
	}{
		{2, "--queues 900: must be 1 to 255", []string{"--queues <n>: must be 1 to <most>"}},
		{3, "--queues 900: must be 1 to 255", nil},
		{NoStatus, "--queues 900: must be 1 to 255", []string{"--queues <n>: must be 1 to <most>"}},
		{NoStatus, "busy", []string{"busy"}},
		{4, "busy", []string{"busy"}},
		{NoStatus, "`ping` works", nil},
	} {
		if d := cmp.Diff(c.want, Explain(rows, c.status, c.text)); d != "" {
			t.Errorf("%s: %s", c.text, d)
		}
	}
}

package errdoc

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const page = "# A page\n\ntext with `code`\n\n" +
	"| message | status | fix |\n|---|---|---|\n" +
	"| `--queues <n>: must be 1 to <most>` | 2 | `--queues 4` |\n" +
	"| ``see `splitnic --help` `` or `a \\| b` | 2 | |\n\n" +
	"| symptom | fix |\n|:---|---|\n| `ping` works | x |\n\n" +
	"| name | fix |\n|---|---|\n| `busy` | |\n\n" +
	"These end with exit status 3:\n\n```messages\nno `card` | <name>\n\ngone\n```\n\n" +
	"Exit status 4. All begin with `LAN <kind>: `:\n\n```messages\nin use\n```\n\n" +
	"| message | status |\n|---|---|\n| `no card` | 3 |\n\n" +
	"And others:\n\n```messages\nfull\n```\n\n```\nno message\n```\n\n" +
	"| exit status | meaning |\n|---|---|\n| 0 | done |\n"

func TestParse(t *testing.T) {
	want := []Entry{
		{Key: "2 --queues <n>: must be 1 to <most>", Line: 7, Message: "--queues <n>: must be 1 to <most>", Status: 2},
		{Key: "2 see `splitnic --help` ", Line: 8, Message: "see `splitnic --help` ", Status: 2},
		{Key: "2 a | b", Line: 8, Message: "a | b", Status: 2},
		{Key: "symptom `ping` works", Line: 12, Status: NoStatus},
		{Key: "- busy", Line: 16, Message: "busy", Status: NoStatus},
		{Key: "3 no `card` | <name>", Line: 21, Message: "no `card` | <name>", Status: 3},
		{Key: "3 gone", Line: 23, Message: "gone", Status: 3},
		{Key: "4 LAN <kind>: in use", Line: 29, Message: "LAN <kind>: in use", Status: 4},
		{Key: "3 LAN <kind>: no card", Line: 34, Message: "LAN <kind>: no card", Status: 3},
		{Key: "- full", Line: 39, Message: "full", Status: NoStatus},
		{Key: "exit status 0", Line: 48, Status: NoStatus},
	}
	if d := cmp.Diff(want, Parse("", page)); d != "" {
		t.Error(d)
	}
}

func TestParseTests(t *testing.T) {
	got := ParseTests("# Remark\n\n2 a <b>\n- c\n\tTestA/x,_y\n\tTestB\nsymptom d\n\nexit status 0\n\tTestC\n")
	want := []Group{
		{Line: 3, Keys: []string{"2 a <b>", "- c"}, Tests: []string{"TestA/x,_y", "TestB"}},
		{Line: 7, Keys: []string{"symptom d"}},
		{Line: 9, Keys: []string{"exit status 0"}, Tests: []string{"TestC"}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestCheck(t *testing.T) {
	entries := Parse(Page, "| message | status |\n|---|---|\n| `a` | 2 |\n| `b` | 3 |\n")
	for _, c := range []struct{ tests, want string }{
		{"2 a\n3 b\n\tTestA\n", ""},
		{"2 a\n\tTestA\n", Page + `:4: "3 b" is not in ` + TestsFile},
		{"2 a\n- b\n3 b\n\tTestA\n", TestsFile + `:1: "- b" is in neither ` + Page + " nor " + MessagesFile},
		{"2 a\n3 b\n", TestsFile + `:1: "2 a" has no test`},
		{"2 a\n3 b\n\tby hand\n", TestsFile + `:1: "by hand" is not the name of a test`},
	} {
		if got := strings.Join(Check(entries, ParseTests(c.tests)), "; "); got != c.want {
			t.Errorf("%q: %s", c.tests, got)
		}
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
		if got := matches(c.message, c.text); got != c.want {
			t.Errorf("%q, %q: %t", c.message, c.text, got)
		}
	}
}

// TestPage checks the entries of the page and of messages.md. Each is in one of them, and its message
// does not consist only of placeholders, which would match every error.
func TestPage(t *testing.T) {
	text, err := os.ReadFile("../../" + Page)
	if err != nil {
		t.Fatal(err)
	}
	entries := All(string(text))
	if len(entries) < 300 {
		t.Errorf("%d entries in %s and %s", len(entries), Page, MessagesFile)
	}
	twice := map[string]bool{}
	for _, e := range entries {
		if twice[e.Key] && strings.Contains(e.Message, " ") { // names of counters are in several columns
			t.Errorf("%s:%d: %q is there twice", e.File, e.Line, e.Key)
		}
		twice[e.Key] = true
		if said := placeholder.ReplaceAllString(e.Message, ""); said != e.Message && len(strings.Trim(said, ": ")) < 6 {
			t.Errorf("%s:%d: %q is too vague", e.File, e.Line, e.Message)
		}
	}
	for _, wrong := range Check(entries, ParseTests(Tests)) {
		t.Error(wrong)
	}
}

func TestExplain(t *testing.T) {
	entries := Parse(Page, page)
	for _, c := range []struct {
		status int
		text   string
		want   []string
	}{
		{2, "--queues 900: must be 1 to 255", []string{"2 --queues <n>: must be 1 to <most>"}},
		{3, "--queues 900: must be 1 to 255", nil},
		{NoStatus, "--queues 900: must be 1 to 255", []string{"2 --queues <n>: must be 1 to <most>"}},
		{NoStatus, "busy", []string{"- busy"}},
		{4, "busy", []string{"- busy"}},
		{NoStatus, "`ping` works", nil},
	} {
		if d := cmp.Diff(c.want, Explain(entries, c.status, c.text)); d != "" {
			t.Errorf("%s: %s", c.text, d)
		}
	}
}

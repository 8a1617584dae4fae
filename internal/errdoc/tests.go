package errdoc

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
)

// TestsFile is the file of Tests, relative to the top of the checkout.
const TestsFile = "internal/errdoc/tests.txt"

// Tests lists the tests of the entries of Page, in groups. A group has keys of entries, one per
// line, and after them its tests, indented. Lines that begin with # are comments.
//
//go:embed tests.txt
var Tests string

// Group is a group of tests that together produce all messages of some entries.
type Group struct {
	Line  int // in TestsFile, from 1
	Keys  []string
	Tests []string // of subtests too
}

var testName = regexp.MustCompile(`^Test\w+(/\S+)?$`)

// ParseTests returns the groups of a text in the format of Tests.
func ParseTests(text string) []Group {
	var groups []Group
	more := false // the line before was a key of the last group
	for i, line := range strings.Split(text, "\n") {
		name, indented := strings.CutPrefix(line, "\t")
		last := len(groups) - 1
		isKey := line != "" && !indented && !strings.HasPrefix(line, "#")
		switch {
		case indented && last >= 0:
			groups[last].Tests = append(groups[last].Tests, name)
		case isKey && more:
			groups[last].Keys = append(groups[last].Keys, line)
		case isKey:
			groups = append(groups, Group{Line: i + 1, Keys: []string{line}})
		}
		more = isKey
	}
	return groups
}

// Check reports entries without tests, and tests of entries that are not on the page.
func Check(entries []Entry, groups []Group) []string {
	var wrong []string
	documented, tested := make(map[string]bool), make(map[string]bool)
	for _, e := range entries {
		documented[e.Key] = true
	}
	for _, g := range groups {
		if len(g.Tests) == 0 {
			wrong = append(wrong, fmt.Sprintf("%s:%d: %q has no test", TestsFile, g.Line, g.Keys[0]))
		}
		for _, t := range g.Tests {
			if !testName.MatchString(t) {
				wrong = append(wrong, fmt.Sprintf("%s:%d: %q is not the name of a test", TestsFile, g.Line, t))
			}
		}
		for _, k := range g.Keys {
			tested[k] = true
			if !documented[k] {
				wrong = append(wrong, fmt.Sprintf("%s:%d: %q is in neither %s nor %s", TestsFile, g.Line, k, Page,
					MessagesFile))
			}
		}
	}
	for _, e := range entries {
		if !tested[e.Key] {
			wrong = append(wrong, fmt.Sprintf("%s:%d: %q is not in %s", e.File, e.Line, e.Key, TestsFile))
		}
	}
	return wrong
}

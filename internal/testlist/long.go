package testlist

import (
	"fmt"
	"regexp"
	"strings"
)

// LongPage lists the tests that take long, relative to the top of the checkout: the code in the
// first column of the table below longHeading.
const (
	LongPage    = "docs/testing.md"
	longHeading = "### Long tests"
)

var quoted = regexp.MustCompile("`((?:Test|Fuzz)[^`]*)`")

// Long returns the tests that page, the text of LongPage, lists as long: names of top-level
// tests, and of subtests as Test/subtest.
func Long(page string) ([]string, error) {
	_, section, ok := strings.Cut(page, "\n"+longHeading+"\n")
	if !ok {
		return nil, fmt.Errorf("%s has no heading %q", LongPage, longHeading)
	}
	section, _, _ = strings.Cut(section, "\n#")
	var tests []string
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		first, _, _ := strings.Cut(line[1:], "|")
		for _, m := range quoted.FindAllStringSubmatch(first, -1) {
			tests = append(tests, m[1])
		}
	}
	return tests, nil
}

// Pattern returns a pattern for the flags -run and -skip of go test that matches exactly these
// tests and subtests. A * stands for any text in the name of a test or subtest. Names with the same
// parent are one alternative: a test binary compiles all of them again for each subtest.
func Pattern(tests []string) string {
	var parents, patterns []string
	names := map[string][]string{} // by parent
	for _, t := range tests {
		parts := strings.Split(t, "/")
		for i, part := range parts {
			parts[i] = strings.ReplaceAll(regexp.QuoteMeta(part), `\*`, ".*")
		}
		last := len(parts) - 1
		parent := ""
		for _, part := range parts[:last] {
			parent += "^" + part + "$/"
		}
		if names[parent] == nil {
			parents = append(parents, parent)
		}
		names[parent] = append(names[parent], parts[last])
	}
	for _, parent := range parents {
		patterns = append(patterns, parent+"^("+strings.Join(names[parent], "|")+")$")
	}
	return strings.Join(patterns, "|")
}

// Covers reports whether a long test, in which a * may be, is test or one of its parents.
func Covers(long, test string) bool {
	names, parts := strings.Split(test, "/"), strings.Split(long, "/")
	if len(names) < len(parts) {
		return false
	}
	for i, part := range parts {
		if ok, err := regexp.MatchString(Pattern([]string{part}), names[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

// Package trouble reads docs/troubleshooting.md: which messages it explains,
// with which exit status, and which tests produce them.
package trouble

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// File is the page, relative to the top of the checkout.
const File = "docs/troubleshooting.md"

// Attribute is the key of the attribute that a test has (testing.T.Attr) for
// each message of the page that it has produced. The message is its value.
const Attribute = "trouble"

// NoStatus is the Row.Status of messages after which no process ends.
const NoStatus = -1

// Row is a row of a table. One of a table whose first column is headed
// "symptom" has no messages.
type Row struct {
	Name string // what it begins with
	Line int    // in the page, from 1
	// Messages are what it explains, <like this> where they vary.
	Messages []string
	Status   int      // that a process ends with, or NoStatus
	Tests    []string // that produce them, of subtests too
}

var (
	rule        = regexp.MustCompile(`^\|[ :|-]+\|$`)
	testName    = regexp.MustCompile(`^Test\w+(/\S+)?$`)
	placeholder = regexp.MustCompile(`<[a-z][^<>]*>`)
)

// Parse returns the rows of all tables in page, without their headings. The
// messages are the code in the first column, the tests that in the last, and
// the status is in the column with that heading.
func Parse(page string) []Row {
	var rows []Row
	var heading []string
	lines := strings.Split(page, "\n")
	for i, line := range lines {
		switch {
		case !strings.HasPrefix(line, "|"):
			heading = nil
			continue
		case rule.MatchString(line):
			continue
		case i+1 < len(lines) && rule.MatchString(lines[i+1]):
			heading = cells(line)
			continue
		}
		row := Row{Line: i + 1, Status: NoStatus}
		columns := cells(line)
		row.Name = columns[0]
		if len(heading) > 0 && heading[0] != "symptom" {
			row.Messages = code(columns[0])
		}
		if c := slices.Index(heading, "status"); c >= 0 && c < len(columns) {
			if n, err := strconv.Atoi(columns[c]); err == nil {
				row.Status = n
			}
		}
		for _, word := range code(columns[len(columns)-1]) {
			if testName.MatchString(word) {
				row.Tests = append(row.Tests, word)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// cells are the cells of a table's row. A bar with a backslash before it is
// part of a cell, also in code.
func cells(line string) []string {
	const bar = "\x00"
	line = strings.ReplaceAll(line, `\|`, bar)
	line = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "|"), "|")
	var all []string
	for cell := range strings.SplitSeq(line, "|") {
		all = append(all, strings.TrimSpace(strings.ReplaceAll(cell, bar, "|")))
	}
	return all
}

// code is all code in text: what is between as many backquotes and as many
// again, without one space at either end where both are there.
func code(text string) []string {
	var all []string
	for {
		start := strings.IndexByte(text, '`')
		if start < 0 {
			return all
		}
		text = text[start:]
		n := len(text) - len(strings.TrimLeft(text, "`"))
		inside, rest, ok := cutFence(text[n:], n)
		if !ok {
			return all
		}
		if len(inside) > 2 && inside[0] == ' ' && inside[len(inside)-1] == ' ' {
			inside = inside[1 : len(inside)-1]
		}
		all, text = append(all, inside), rest
	}
}

// cutFence cuts text at the first run of exactly n backquotes.
func cutFence(text string, n int) (before, after string, ok bool) {
	for at := 0; at < len(text); {
		i := strings.IndexByte(text[at:], '`')
		if i < 0 {
			return "", "", false
		}
		at += i
		run := len(text[at:]) - len(strings.TrimLeft(text[at:], "`"))
		if run == n {
			return text[:at], text[at+run:], true
		}
		at += run
	}
	return "", "", false
}

// Matches reports whether text is what the message says, with something in
// place of each placeholder.
func Matches(message, text string) bool {
	parts := placeholder.Split(message, -1)
	first, last := parts[0], parts[len(parts)-1]
	if len(parts) == 1 {
		return text == message
	}
	if len(text) < len(first)+1+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		if text == "" {
			return false
		}
		at := strings.Index(text[1:], part) // the earliest leaves most for the rest
		if at < 0 {
			return false
		}
		text = text[1+at+len(part):]
	}
	return text != ""
}

// Explain returns the messages of rows that text is one of. status is that with
// which the process ended that wrote it, NoStatus if none did; a row without a
// status is about any.
func Explain(rows []Row, status int, text string) []string {
	var messages []string
	for _, r := range rows {
		for _, m := range r.Messages {
			if (r.Status == status || r.Status == NoStatus || status == NoStatus) && Matches(m, text) {
				messages = append(messages, m)
			}
		}
	}
	return messages
}

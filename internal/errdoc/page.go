// Package errdoc reads the documentation of errors: docs/troubleshooting.md,
// which has the messages that users meet, and tests.txt, which has the tests
// that produce them.
package errdoc

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Page is the documentation, relative to the top of the checkout.
const Page = "docs/troubleshooting.md"

// Attribute is the key of the attribute that a test has (testing.T.Attr) for
// each message of the page that it has produced. The entry's Key is its value.
const Attribute = "errdoc"

// NoStatus is the Entry.Status of messages after which no process ends.
const NoStatus = -1

// Entry is a message on the page, or the row of a table that has none: a
// symptom, an exit status.
type Entry struct {
	// Key is its name in tests.txt: the message behind its exit status, or
	// behind "-" if it has none; otherwise the heading of the row's first
	// column and what is in it.
	Key     string
	Line    int    // in the page, from 1
	Message string // <like this> where it varies
	Status  int    // that a process ends with, or NoStatus
}

var (
	rule        = regexp.MustCompile(`^\|[ :|-]+\|$`)
	placeholder = regexp.MustCompile(`<[a-z][^<>]*>`)
	blockStatus = regexp.MustCompile(`\b[Ee]xit status (\d+)\b.*:$`)
	begins      = regexp.MustCompile("\\bbegins? with (`.*`).*:$")
)

// listOpens begins a block of code with a message in each line.
const listOpens, listCloses = "```messages", "```"

// Parse returns what page documents. Messages are the lines of blocks of code
// marked "messages", and the code in the first column of tables. The exit status
// is in the column with the heading "status", or at the end of the line of text
// before a block. That line can also say how all messages begin. Code in the
// column "symptom" is no message.
func Parse(page string) []Entry {
	var entries []Entry
	var heading []string
	lines := strings.Split(page, "\n")
	inList, prefix, status := false, "", NoStatus
	for i, line := range lines {
		switch {
		case inList:
			if inList = line != listCloses; inList && line != "" {
				entries = append(entries, message(prefix+line, status, i+1))
			}
		case line == listOpens:
			inList = true
		case !strings.HasPrefix(line, "|"):
			heading = nil
			if line != "" {
				prefix, status = "", statusOf(blockStatus.FindStringSubmatch(line))
				if m := begins.FindStringSubmatch(line); m != nil {
					prefix = strings.Join(code(m[1]), "")
				}
			}
		case rule.MatchString(line):
		case i+1 < len(lines) && rule.MatchString(lines[i+1]):
			heading = cells(line)
		default:
			entries = append(entries, row(heading, cells(line), prefix, i+1)...)
		}
	}
	return entries
}

// row returns the entries of a table's row.
func row(heading, columns []string, prefix string, line int) []Entry {
	first := ""
	if len(heading) > 0 {
		first = heading[0]
	}
	status := NoStatus
	if c := slices.Index(heading, "status"); c >= 0 && c < len(columns) {
		status = statusOf([]string{"", columns[c]})
	}
	var entries []Entry
	if first != "symptom" {
		for _, m := range code(columns[0]) {
			entries = append(entries, message(prefix+m, status, line))
		}
	}
	if len(entries) == 0 {
		entries = []Entry{{Key: first + " " + columns[0], Line: line, Status: NoStatus}}
	}
	return entries
}

func message(text string, status, line int) Entry {
	key := "- " + text
	if status != NoStatus {
		key = strconv.Itoa(status) + " " + text
	}
	return Entry{Key: key, Line: line, Message: text, Status: status}
}

// statusOf is the number in the second of match, NoStatus if there is none.
func statusOf(match []string) int {
	if len(match) < 2 {
		return NoStatus
	}
	n, err := strconv.Atoi(match[1])
	if err != nil {
		return NoStatus
	}
	return n
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

// matches reports whether text is what the message says, with something in
// place of each placeholder.
func matches(message, text string) bool {
	literals := placeholder.Split(message, -1)
	first, last := literals[0], literals[len(literals)-1]
	if len(literals) == 1 {
		return text == message
	}
	if len(text) < len(first)+1+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, literal := range literals[1 : len(literals)-1] {
		if text == "" {
			return false
		}
		at := strings.Index(text[1:], literal) // the earliest leaves most for the rest
		if at < 0 {
			return false
		}
		text = text[1+at+len(literal):]
	}
	return text != ""
}

// Explain returns the keys of the entries that text is a message of. status is
// that with which the process ended that wrote it, NoStatus if none did; an
// entry without a status is about any.
func Explain(entries []Entry, status int, text string) []string {
	var keys []string
	for _, e := range entries {
		if e.Message == "" || e.Status != status && e.Status != NoStatus && status != NoStatus {
			continue
		}
		if matches(e.Message, text) {
			keys = append(keys, e.Key)
		}
	}
	return keys
}

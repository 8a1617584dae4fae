// Package errdoc parses the documentation of errors: docs/troubleshooting.md with the messages
// that need an explanation, messages.md with the others, and tests.txt with the tests that produce
// them.
package errdoc

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Page is the documentation, relative to the top of the checkout.
const Page = "docs/troubleshooting.md"

// MessagesFile is the file of Messages, relative to the top of the checkout.
const MessagesFile = "internal/errdoc/messages.md"

// Messages lists, in the form of Page, the messages that users see and that Page does not have,
// because they say themselves what to do.
//
//go:embed messages.md
var Messages string

// Attribute is the key of the attribute (testing.T.Attr) that a test sets for each message of
// the page that it has produced. The value is the entry's Key.
const Attribute = "errdoc"

// NoStatus is the Entry.Status of messages of processes that go on.
const NoStatus = -1

// Entry is a message on the page, or a row of a table without a message: a symptom, or an
// exit status.
type Entry struct {
	// Key is the name in tests.txt: the exit status, or "-" if there is none, and the
	// message. For a row without a message it is the heading and the text of the first
	// column.
	Key     string
	File    string // Page or MessagesFile
	Line    int    // in the file, from 1
	Message string // with <placeholders> for variable text
	Status  int    // exit status of the process, or NoStatus
}

var (
	rule        = regexp.MustCompile(`^\|[ :|-]+\|$`)
	placeholder = regexp.MustCompile(`<[a-z][^<>]*>`)
	blockStatus = regexp.MustCompile(`\b[Ee]xit status (\d+)\b.*:$`)
	begins      = regexp.MustCompile("\\bbegins? with (`.*`).*:$")
)

// listOpens and listCloses delimit a block of code with one message per line.
const listOpens, listCloses = "```messages", "```"

// All returns the entries of Page, whose text is page, and those of Messages.
func All(page string) []Entry { return append(Parse(Page, page), Parse(MessagesFile, Messages)...) }

// Parse returns the entries of the text of a file. Messages are the lines of code blocks marked
// "messages", and the code in the first column of tables, except a column "symptom". The exit
// status is in the column "status", or at the end of the line of text before a block. That
// line can also have the common prefix of the messages.
func Parse(file, page string) []Entry {
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
	for i := range entries {
		entries[i].File = file
	}
	return entries
}

// row returns the entries of a row of a table.
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

// statusOf returns the number in match[1], or NoStatus if there is none.
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

// cells returns the cells of a row of a table. An escaped bar (\|) is part of a cell, also in
// code.
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

// code returns all code spans of text: between two runs of the same number of backquotes,
// without one space at either end if both ends have one.
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

// matches reports whether text is the message, with any text for each placeholder.
func matches(message, text string) bool {
	// Most messages begin differently: looking for placeholders in all of them would take longest.
	if begin, _, _ := strings.Cut(message, "<"); !strings.HasPrefix(text, begin) {
		return false
	}
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
		at := strings.Index(text[1:], literal) // the earliest match leaves most for the rest
		if at < 0 {
			return false
		}
		text = text[1+at+len(literal):]
	}
	return text != ""
}

// Explain returns the keys of the entries whose message is text. status is the exit status of
// the process that wrote text, or NoStatus if the process goes on. An entry without a status
// matches any status.
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

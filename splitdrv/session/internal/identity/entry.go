package identity

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/splitnic/splitnic/internal/printable"
)

// parseEntry parses a fingerprint with the name of its owner or without one. Names have no colon,
// so that the prefix of the fingerprint tells which of the two parts it is.
func parseEntry(entry string) (name string, f Fingerprint, err error) {
	first, second, named := strings.Cut(entry, "=")
	if !named {
		first, second = entry, ""
		if i := strings.IndexAny(entry, " \t"); i >= 0 {
			first, second, named = entry[:i], entry[i:], true
		}
	}
	name, encoded := strings.TrimSpace(first), strings.TrimSpace(second)
	if !named || strings.HasPrefix(name, fingerprintPrefix) && !strings.HasPrefix(encoded, fingerprintPrefix) {
		name, encoded = encoded, name
	}
	if named && !ValidName(name) {
		return "", f, fmt.Errorf("trust entry %s: the name beside the fingerprint must be 1 to %d letters, digits, '.', '_' or '-'",
			quote(entry), MaxNameLength)
	}
	if f, err = ParseFingerprint(encoded); err != nil {
		return "", f, fmt.Errorf("trust entry %s: %w", quote(entry), err)
	}
	return name, f, nil
}

// Limits of a quotation in bytes. The file could be that of a private key, given by mistake: a line
// of it must not be readable in a log.
const (
	maxQuote      = 40
	maxQuoteWord  = 16 // a longer word is cut to cutWord bytes
	cutWord       = 8
	maxQuoteWords = 3
)

var entryWord = regexp.MustCompile(`[^ =]+`)

// quote returns the beginning of an entry in quotation marks, enough to find it in the file.
func quote(entry string) string {
	text := printable.Text(entry)
	if words := entryWord.FindAllStringIndex(text, maxQuoteWords+1); len(words) > maxQuoteWords {
		text = text[:words[maxQuoteWords][0]] + "…"
	}
	text = entryWord.ReplaceAllStringFunc(text, func(word string) string {
		encoded, ok := strings.CutPrefix(word, fingerprintPrefix)
		if len(encoded) > maxQuoteWord {
			encoded = cut(encoded, cutWord)
		}
		if ok {
			return fingerprintPrefix + encoded
		}
		return encoded
	})
	return strconv.Quote(cut(text, maxQuote))
}

// cut returns at most n bytes of whole characters of text, with an ellipsis if there were more.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}

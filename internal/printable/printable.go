// Package printable makes texts safe to print that others have chosen, such as peers and whoever
// is root in a container. Escape sequences in a name could otherwise change what a terminal shows.
package printable

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns s with a question mark in place of each character that is not printable,
// including ends of lines and bytes that are not UTF-8.
func Text(s string) string { return strings.Map(func(r rune) rune { return replaced(r) }, s) }

// Is reports whether all characters of s are printable.
func Is(s string) bool { return Text(s) == s && utf8.ValidString(s) }

func replaced(r rune) rune {
	if r == utf8.RuneError || !unicode.IsPrint(r) {
		return '?'
	}
	return r
}

// Name returns the name of value v of an enumeration. If it has none, Name returns what it is, and its
// number.
func Name[V ~uint8 | ~uint16 | ~uint32](names []string, v V, what string) string {
	if uint64(v) < uint64(len(names)) && names[v] != "" {
		return names[v]
	}
	return fmt.Sprintf("%s %d", what, v)
}

// Writer returns an io.Writer that writes to w what Text returns, but passes tabulators and ends
// of lines. Each Write must be of whole characters.
func Writer(w io.Writer) io.Writer { return writer{w} }

type writer struct{ w io.Writer }

// Write implements io.Writer.
func (w writer) Write(b []byte) (int, error) {
	text := strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return replaced(r)
	}, string(b))
	if _, err := io.WriteString(w.w, text); err != nil {
		return 0, err
	}
	return len(b), nil
}

package printable_test

import (
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/printable"
)

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"sn0 of héro": "sn0 of héro", "": "", "a\x1b[2Jb": "a?[2Jb", "two\nlines\t": "two?lines?",
		"\u009b1m": "?1m", "\u202eright": "?right", "\xff\xfe": "??", "\ufffd": "?", "del\x7f": "del?",
	} {
		if got := printable.Text(text); got != want {
			t.Errorf("%q becomes %q, not %q", text, got, want)
		}
		if printable.Is(text) != (text == want) {
			t.Errorf("%q is printable: %t", text, text != want)
		}
	}
}

func TestWriter(t *testing.T) {
	var b strings.Builder
	if n, err := printable.Writer(&b).Write([]byte("a\tb\x1b]0;x\a\n\xff")); n != 11 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if b.String() != "a\tb?]0;x?\n?" {
		t.Errorf("%q", b.String())
	}
}

func TestName(t *testing.T) {
	names := []string{1: "one", 3: "three"}
	for v, want := range map[uint32]string{
		0: "value 0", 1: "one", 2: "value 2", 3: "three", 4: "value 4", 1<<32 - 1: "value 4294967295",
	} {
		if got := printable.Name(names, v, "value"); got != want {
			t.Errorf("Name(%d) = %q, want %q", v, got, want)
		}
	}
}

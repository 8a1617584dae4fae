package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/splitnic/splitnic/internal/trouble"
)

// Explained checks that docs/troubleshooting.md explains text, an error as a
// user reads it in a status, a reply or a report, and notes for the checker of
// that page that this test has produced it.
func Explained(t testing.TB, text string) {
	t.Helper()
	Ended(t, trouble.NoStatus, text)
}

// Ended is Explained for the line with which a process explained why it ended
// with that status, without the name of the program before it.
func Ended(t testing.TB, status int, text string) {
	t.Helper()
	rows, err := troubles()
	if err != nil {
		t.Fatal(err)
	}
	messages := trouble.Explain(rows, status, text)
	if len(messages) == 0 {
		what := ""
		if status != trouble.NoStatus {
			what = fmt.Sprintf(", with status %d", status)
		}
		t.Errorf("%s does not explain this message%s:\n%s", trouble.File, what, text)
		return
	}
	for _, m := range messages {
		t.Attr(trouble.Attribute, m)
	}
}

// troubles reads the page of the checkout that the tests run in, once.
var troubles = sync.OnceValues(func() ([]trouble.Row, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("finding %s: %w", trouble.File, err)
	}
	for ; ; dir = filepath.Dir(dir) {
		page, err := os.ReadFile(filepath.Join(dir, trouble.File))
		switch {
		case err == nil:
			return trouble.Parse(string(page)), nil
		case !errors.Is(err, os.ErrNotExist) || dir == filepath.Dir(dir):
			return nil, fmt.Errorf("finding %s above the test's directory: %w", trouble.File, err)
		}
	}
})

package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/splitnic/splitnic/internal/errdoc"
)

// Explained checks that the documentation of errors has text, an error in the form in which a user
// reads it in a status, a reply or a report. It records for the checker of that documentation
// (scripts/testreport) that this test has produced the error.
func Explained(t testing.TB, text string) {
	t.Helper()
	Ended(t, errdoc.NoStatus, text)
}

// Ended is Explained for the line in which a process has explained why it ended with a status. text
// is the line without the name of the program at the beginning.
func Ended(t testing.TB, status int, text string) {
	t.Helper()
	entries, err := documented()
	if err != nil {
		t.Fatal(err)
	}
	keys := errdoc.Explain(entries, status, text)
	if len(keys) == 0 {
		what := ""
		if status != errdoc.NoStatus {
			what = fmt.Sprintf(", with status %d", status)
		}
		t.Errorf("this message is in neither %s nor %s%s:\n%s", errdoc.Page, errdoc.MessagesFile, what, text)
		return
	}
	for _, k := range keys {
		t.Attr(errdoc.Attribute, k)
	}
}

// documented reads the page of the checkout in which the tests run. It reads the page only once.
var documented = sync.OnceValues(func() ([]errdoc.Entry, error) {
	dir, err := above(errdoc.Page)
	if err != nil {
		return nil, err
	}
	page, err := os.ReadFile(filepath.Join(dir, errdoc.Page))
	return errdoc.All(string(page)), err
})

// above returns the directory at or above the test's that has a file of this name.
func above(name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding %s: %w", name, err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return dir, nil
		} else if dir == "/" {
			return "", fmt.Errorf("finding %s above the test's directory: %w", name, err)
		}
	}
}

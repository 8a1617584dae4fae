package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
)

// TestKeygenMistakes names a file that is no key, whose access nobody is to change, and a directory
// that does not exist, which may be mistyped.
func TestKeygenMistakes(t *testing.T) {
	dir := t.TempDir()
	other, nowhere := filepath.Join(dir, "passwd"), filepath.Join(dir, "splitinc", "key.pem")
	if err := os.WriteFile(other, []byte("root:x:0:0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for out, want := range map[string]struct {
		text   string
		status int
	}{other: {`no PEM block "PRIVATE KEY" in it`, exit.Keys}, nowhere: {"make the directory", exit.Missing}} {
		err := execute(t, "keygen", "--out", out)
		if exit.Status(err) != want.status || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%s: %v (status %d)", out, err, exit.Status(err))
		}
	}
	if _, err := os.Stat(filepath.Dir(nowhere)); err == nil {
		t.Error("a directory was made")
	}
}

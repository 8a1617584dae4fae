package main

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// full is a standard output that nothing can be written to.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, unix.ENOSPC }

// TestOutputFails has a disk that is full in the place of standard output: what scripts go by
// is not missing without a word.
func TestOutputFails(t *testing.T) {
	for _, line := range []string{
		"keygen --out " + filepath.Join(t.TempDir(), "key.pem"), "doctor", "doctor --json", "version", "status --schema",
	} {
		root := rootCommand()
		root.SetArgs(strings.Fields(line))
		root.SetOut(full{})
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), unix.ENOSPC.Error()) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

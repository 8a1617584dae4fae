package main

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// full is a standard output whose disk is full.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, unix.ENOSPC }

// TestOutputFails runs commands whose standard output is on a full disk. It expects an error,
// because scripts use this output.
func TestOutputFails(t *testing.T) {
	for _, line := range []string{
		"keygen --out " + filepath.Join(t.TempDir(), "key.pem"), "doctor", "doctor --json", "version", "version --json",
		"status --schema",
	} {
		root := rootCommand()
		root.SetArgs(strings.Fields(line))
		root.SetOut(full{})
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), unix.ENOSPC.Error()) {
			t.Errorf("%s: %v", line, err)
		}
	}
	for _, line := range []string{"", "help", "help status", "status --help", "iounit -h", "bench", "--version"} {
		root := rootCommand()
		root.SetOut(full{})
		if _, err := run(t.Context(), root, strings.Fields(line)); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%q: %v", line, err)
		}
	}
}

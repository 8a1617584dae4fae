package netns_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
)

// TestDoesNotWait has a pipe without a writer in the place of a network namespace. It expects an
// error without a wait.
func TestDoesNotWait(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- netns.Do(path, func() error { return nil }) }()
	select {
	case err := <-done:
		if err == nil {
			t.Error("a pipe is a network namespace")
		}
	case <-time.After(testenv.Patience):
		t.Error("a network namespace is waited for")
		if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil { // ends the wait
			f.Close()
		}
	}
}

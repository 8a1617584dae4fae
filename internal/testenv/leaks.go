package testenv

import (
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// NoLeaks fails the test if, after all cleanups that are registered later,
// there are goroutines or descriptors that were not there when it was called.
// Call it first. Tests that use it must not run in parallel with others.
func NoLeaks(t testing.TB) {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	before := descriptors(t)
	t.Cleanup(func() {
		if t.Failed() {
			return // a failed test may have left anything
		}
		if err := goleak.Find(ignore); err != nil {
			t.Error(err)
		}
		var extra []string
		for fd, target := range descriptors(t) {
			if before[fd] == target {
				continue
			}
			extra = append(extra, fd+" -> "+target)
		}
		if len(extra) > 0 {
			t.Errorf("descriptors left open: %s", strings.Join(extra, ", "))
		}
	})
}

// descriptors returns the open descriptors of the process and their targets, without those of Go's
// poller, which stay open after its first use.
func descriptors(t testing.TB) map[string]string {
	t.Helper()
	const dir = "/proc/self/fd/"
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	fds := make(map[string]string)
	for _, e := range entries {
		target, err := os.Readlink(dir + e.Name())
		if err != nil {
			continue // the descriptor for reading the directory
		}
		if target == "anon_inode:[eventpoll]" || target == "anon_inode:[eventfd]" {
			continue
		}
		fds[e.Name()] = target
	}
	return fds
}

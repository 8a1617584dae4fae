// Package scripts tests the errors of the project's scripts.
package scripts

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
)

// tools makes a directory with this machine's programs, without some, and with scripts that replace
// others, by their text.
func tools(t *testing.T, without string, standIns map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, from := range []string{"/usr/bin", "/usr/sbin"} {
		entries, err := os.ReadDir(from)
		if err != nil {
			continue // not every machine has them all
		}
		for _, e := range entries {
			if without != "" && strings.HasPrefix(e.Name(), without) || standIns[e.Name()] != "" {
				continue
			}
			_ = os.Symlink(filepath.Join(from, e.Name()), filepath.Join(dir, e.Name())) // twice in both
		}
	}
	for name, text := range standIns {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestErrdocOfScripts runs scripts that fail because something is missing.
func TestErrdocOfScripts(t *testing.T) {
	testenv.NeedTools(t, "bash")
	debian := map[string]string{"dpkg-query": "true", "dpkg": "echo amd64"}
	user := map[string]string{"dpkg-query": "true", "dpkg": "echo amd64", "id": "echo 1000"}
	for _, tc := range []struct {
		name     string
		without  string // programs whose names begin so
		standIns map[string]string
		env      string
		command  []string
		status   int
	}{
		{"need", "", nil, "", []string{"bash", "-c", `. scripts/lib.sh; need no-such-program no-such-package`, "test"}, 1},
		{"need for a reason", "", nil, "", []string{"bash", "-c",
			`. scripts/lib.sh; need no-such-program no-such-package "to test"`, "test"}, 1},
		{"setup without root", "", user, "", []string{"scripts/setup.sh", "test"}, 1},
		{"setup --check", "", debian, "", []string{"scripts/setup.sh", "--check", "test"}, 1},
		{"other distribution", "dpkg", nil, "", []string{"scripts/setup.sh", "test"}, 1},
		{"setup of something else", "", nil, "", []string{"scripts/setup.sh", "everything"}, 2},
		{"no layer", "", nil, "", []string{"scripts/test", "unit", "quick"}, 2},
		{"rounds", "", nil, "ROUNDS=few", []string{"scripts/bench"}, 2},
		{"group", "", nil, "BENCH_ONLY=speed", []string{"scripts/bench"}, 2},
		{"no script", "", nil, "", []string{"ci/softroce/run", "missing.sh"}, 2},
		{"script elsewhere", "", nil, "", []string{"ci/softroce/run", "/etc/passwd"}, 2},
		{"no project", "", nil, "", []string{"ci/softroce/run", "--project", "missing", "ci/softroce/selftest.sh"}, 2},
		{"mode", "", nil, "", []string{"ci/softroce/run", "--mode", "xen", "ci/softroce/selftest.sh"}, 2},
		{"no qemu", "qemu-", nil, "", []string{"ci/softroce/run", "--mode", "tcg", "ci/softroce/selftest.sh", "exit", "0"},
			123},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), tc.command[0], tc.command[1:]...)
			cmd.Dir = ".."
			cmd.Env = os.Environ()
			if tc.without != "" || tc.standIns != nil {
				cmd.Env = append(cmd.Env, "PATH="+tools(t, tc.without, tc.standIns))
			}
			if tc.env != "" {
				cmd.Env = append(cmd.Env, tc.env)
			}
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			_ = cmd.Run() // its status is looked at
			lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
			if got := cmd.ProcessState.ExitCode(); got != tc.status {
				t.Fatalf("status %d, want %d:\n%s", got, tc.status, &stderr)
			}
			testenv.Ended(t, tc.status, lines[len(lines)-1])
		})
	}
}

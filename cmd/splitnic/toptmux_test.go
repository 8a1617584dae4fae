package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// topVar is the environment variable that makes a process of this test run `splitnic top` for
// the socket in it.
const topVar = "SPLITNIC_TEST_TOP"

// terminal is a window of a tmux server that is started for it.
type terminal struct {
	t      *testing.T
	server string // socket
}

// newTerminal runs a shell command in a window of this size.
func newTerminal(t *testing.T, width, height int, command string) *terminal {
	t.Helper()
	testenv.NeedTools(t, "tmux")
	w := &terminal{t, filepath.Join(t.TempDir(), "tmux")}
	w.tmux("new-session", "-d", "-x", fmt.Sprint(width), "-y", fmt.Sprint(height), command)
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", w.server, "kill-server").Run() }) // the server may have ended
	return w
}

func (w *terminal) tmux(args ...string) string {
	w.t.Helper()
	// Use neither the user's configuration nor the encoding of the test's environment.
	args = append([]string{"-u", "-f", "/dev/null", "-S", w.server}, args...)
	cmd := exec.CommandContext(w.t.Context(), "tmux", args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("tmux %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// lines returns the lines that the window shows.
func (w *terminal) lines() []string {
	return strings.Split(strings.TrimRight(w.tmux("capture-pane", "-p"), "\n"), "\n")
}

// shows waits until so is true of the lines in the window, and returns the lines. what is the
// description for an error.
func (w *terminal) shows(what string, so func(lines []string) bool) []string {
	w.t.Helper()
	var lines []string
	testenv.Eventually(w.t, func() bool {
		lines = w.lines()
		return so(lines)
	}, "%s", what)
	return lines
}

// TestTopInTerminal runs `splitnic top` in a terminal for a host whose counters grow. It expects
// rates, reactions to keys and to a new size of the window, and a restored terminal at the end.
func TestTopInTerminal(t *testing.T) {
	if path := os.Getenv(topVar); path != "" {
		root := rootCommand()
		root.SetArgs([]string{"top", path, "--interval", "100ms"})
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		return
	}
	var frames atomic.Uint64
	sock := filepath.Join(t.TempDir(), "host-sn0.sock")
	server, err := statussock.Serve(sock, func() any {
		n := frames.Add(1000)
		s := connected()
		s.Role, s.Card, s.Security.Platform = "host", "sn0", 1
		ch := messaging.ChannelStats{}
		ch.TxFrames, ch.TxBytes = n, n*1500
		s.Traffic = &messaging.Stats{Channels: []messaging.ChannelStats{ch}}
		return s
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	w := newTerminal(t, 90, 12, fmt.Sprintf("echo before; %s=%s %s -test.run '^%s$' >&0; echo status $?; exec cat",
		topVar, sock, os.Args[0], t.Name()))
	row := func(lines []string, name string) []string {
		for _, l := range lines {
			if words := strings.Fields(l); strings.HasPrefix(strings.TrimSpace(l), name) {
				return words
			}
		}
		return nil
	}
	lines := w.shows("rates", func(lines []string) bool {
		words := row(lines, "sn0 ")
		return len(words) > 2 && words[1] != "0" && words[1] != "-"
	})
	if !strings.HasPrefix(lines[0], "splitnic top: 1 card, every 100ms, by name") || row(lines, "CARD") == nil ||
		row(lines, "unit queue 1") == nil || strings.Contains(strings.Join(lines, "\n"), "before") {
		t.Errorf("the terminal shows\n%s", strings.Join(lines, "\n"))
	}
	w.tmux("send-keys", "o")
	w.shows("another order", func(lines []string) bool { return strings.HasSuffix(lines[0], "by out") })
	w.tmux("send-keys", "t")
	w.shows("totals alone", func(lines []string) bool {
		return row(lines, "sn0 ") != nil && row(lines, "unit queue 1") == nil
	})
	w.tmux("resize-window", "-x", "40", "-y", "6")
	w.shows("a narrow table", func(lines []string) bool {
		for _, l := range lines {
			if len([]rune(l)) > 40 {
				return false
			}
		}
		return len(lines) <= 6 && row(lines, "sn0 ") != nil
	})
	server.Close()
	w.shows("that nobody answers", func(lines []string) bool {
		return strings.Contains(strings.Join(lines, "\n"), "no process")
	})
	w.tmux("send-keys", "q")
	w.shows("the terminal as it was", func(lines []string) bool {
		text := strings.Join(lines, "\n")
		return strings.Contains(text, "before") && strings.Contains(text, "status 0") &&
			!strings.Contains(text, "splitnic top")
	})
	// In raw mode the terminal would echo nothing, and Enter would not end a line.
	w.tmux("send-keys", "typed", "Enter")
	w.shows("what is typed, and cat's answer", func(lines []string) bool {
		return strings.Count(strings.Join(lines, "\n"), "typed") == 2
	})
}

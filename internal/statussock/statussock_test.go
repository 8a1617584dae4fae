package statussock

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestServeAndRead(t *testing.T) {
	defer goleak.VerifyNone(t)
	path := filepath.Join(t.TempDir(), "deeper", "x.sock")
	s, err := Serve(path, func() any { return map[string]int{"answer": 42} })
	if err != nil {
		t.Fatal(err)
	}
	raw, err := Read(t.Context(), path)
	if err != nil || strings.TrimSpace(string(raw)) != `{"answer":42}` {
		t.Errorf("%s, %v", raw, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket's mode: %v, %v", info.Mode(), err)
	}
	if _, err := Serve(path, nil); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second server: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	if _, err := Read(t.Context(), path); !errors.Is(err, ErrNobody) {
		t.Errorf("read from nobody: %v", err)
	}
}

func TestCommands(t *testing.T) {
	defer goleak.VerifyNone(t)
	path := filepath.Join(t.TempDir(), "x.sock")
	ran := 0
	s, err := Serve(path, func() any { return 1 },
		Command{Name: "works", Run: func(context.Context) (any, error) { ran++; return []int{ran}, nil }},
		Command{Name: "fails", Run: func(context.Context) (any, error) { return nil, errors.New("out of paper") }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, want := range []string{"[1]", "[2]"} {
		if raw, err := Do(t.Context(), path, "works"); err != nil || strings.TrimSpace(string(raw)) != want {
			t.Errorf("%s, %v", raw, err)
		}
	}
	if raw, err := Do(t.Context(), path, "fails"); err == nil || !strings.Contains(err.Error(), "out of paper") {
		t.Errorf("%s, %v", raw, err)
	}
	if raw, err := Do(t.Context(), path, "other"); !errors.Is(err, ErrUnknown) {
		t.Errorf("%s, %v", raw, err)
	}
	if _, err := Do(t.Context(), path+"x", "works"); !errors.Is(err, ErrNobody) {
		t.Errorf("a command to nobody: %v", err)
	}
	// A GET request does not run a command.
	resp, err := ask(t.Context(), path, http.MethodGet, "/command/works", nil)
	if err == nil || ran != 2 {
		t.Errorf("GET of a command: %s, ran %d times", resp, ran)
	}
}

// TestSilence reads from a stopped process, which accepts a connection and does not answer.
func TestSilence(t *testing.T) {
	defer goleak.VerifyNone(t)
	path := silentSocket(t)
	if raw, err := read(t.Context(), path, time.Nanosecond); !errors.Is(err, ErrSilent) {
		t.Errorf("%s, %v", raw, err)
	}
	if raw, err := read(t.Context(), path, time.Millisecond); !errors.Is(err, ErrSilent) {
		t.Errorf("%s, %v", raw, err)
	}
	// A caller that cancels does not get ErrSilent.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if raw, err := Read(ctx, path); err == nil || errors.Is(err, ErrSilent) {
		t.Errorf("%s, %v", raw, err)
	}
}

// silentSocket returns the path of a socket that does not answer, like that of a stopped process.
func silentSocket(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "x.sock")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return path
}

// TestArguments sends a command with arguments, one of which is too large.
func TestArguments(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	s, err := Serve(path, func() any { return 1 },
		Command{Name: "echo", RunWith: func(_ context.Context, argument json.RawMessage) (any, error) {
			return len(argument), nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for argument, want := range map[string]string{"": "2", "abc": "5", strings.Repeat("x", maxArgument-2): "65536"} {
		if raw, err := DoWith(t.Context(), path, "echo", argument); err != nil || strings.TrimSpace(string(raw)) != want {
			t.Errorf("%d bytes: %s, %v", len(argument), raw, err)
		}
	}
	if raw, err := Do(t.Context(), path, "echo"); err != nil || strings.TrimSpace(string(raw)) != "0" {
		t.Errorf("no argument: %s, %v", raw, err)
	}
	if raw, err := DoWith(t.Context(), path, "echo", strings.Repeat("x", maxArgument)); err == nil {
		t.Errorf("too much: %s", raw)
	}
	if _, err := DoWith(t.Context(), path, "echo", func() {}); err == nil {
		t.Error("a function went through")
	}
}

// leftOver returns the path of a socket that a killed process has left.
func leftOver(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "x.sock")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
	return path
}

// TestDiscard expects Discard to remove the socket of a killed process, and no socket that is
// served.
func TestDiscard(t *testing.T) {
	path := leftOver(t)
	for range 2 {
		if err := Discard(path); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); err == nil {
			t.Fatal("it is still there")
		}
	}
	s, err := Serve(path, func() any { return 1 })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := Discard(path); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

func TestServeReplacesALeftOver(t *testing.T) {
	path := leftOver(t)
	s, err := Serve(path, func() any { return 1 })
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// TestSocketIsItsOwners makes a socket with a umask of 0. It expects the mode 0600 from the
// beginning.
func TestSocketIsItsOwners(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	path := filepath.Join(t.TempDir(), "s")
	ln, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

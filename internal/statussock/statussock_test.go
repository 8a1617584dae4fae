package statussock

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

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

func TestServeReplacesALeftOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
	s, err := Serve(path, func() any { return 1 })
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

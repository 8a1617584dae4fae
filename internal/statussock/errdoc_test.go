package statussock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
)

// TestErrdocOfSockets expects documented errors where sockets cannot be served or read.
func TestErrdocOfSockets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	s, err := Serve(path, func() any { return 1 },
		Command{Name: "fails", Run: func(context.Context) (any, error) { return nil, errors.New("out of paper") }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	noHTTP := filepath.Join(t.TempDir(), "y.sock")
	ln, err := net.Listen("unix", noHTTP)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("hello\n"))
			c.Close()
		}
	}()
	for name, do := range map[string]func() error{
		"a file": func() error {
			path := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(path, []byte("name: sn0\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Serve(path, func() any { return 1 })
			if text, readErr := os.ReadFile(path); readErr != nil || len(text) == 0 {
				t.Errorf("the file is lost: %v", readErr)
			}
			return err
		},
		"taken": func() error { _, err := Serve(path, func() any { return 2 }); return err },
		"killed": func() error {
			_, err := Read(t.Context(), leftSocket(t))
			if !errors.Is(err, ErrNobody) || !errors.Is(err, ErrLeft) {
				t.Errorf("%v", err)
			}
			return err
		},
		"no socket": func() error {
			_, err := Read(t.Context(), t.TempDir())
			if !errors.Is(err, ErrNobody) || errors.Is(err, ErrLeft) {
				t.Errorf("%v: this advises to remove what is no socket", err)
			}
			return err
		},
		"nobody":  func() error { _, err := Read(t.Context(), path+"x"); return err },
		"unknown": func() error { _, err := Do(t.Context(), path, "paint"); return err },
		"fails":   func() error { _, err := Do(t.Context(), path, "fails"); return err },
		// The kernel returns EACCES to users other than root and the owner of the socket.
		"not its user": func() error {
			return fmt.Errorf("status: %w", unanswered(path, &net.OpError{Op: "dial", Err: syscall.EACCES}))
		},
		"stopped": func() error {
			_, err := read(t.Context(), silentSocket(t), time.Millisecond)
			return fmt.Errorf("status: %w", err)
		},
		"no daemon": func() error { _, err := Read(t.Context(), noHTTP); return err },
	} {
		t.Run(name, func(t *testing.T) {
			err := do()
			if err == nil {
				t.Fatal("no error")
			}
			testenv.Explained(t, err.Error())
		})
	}
}

// leftSocket returns the path of a socket on which no process listens any more.
func leftSocket(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "left.sock")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
	return path
}

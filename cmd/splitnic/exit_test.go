package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap"
)

func TestExitStatus(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("other"), exitFailure},
		{usageError{os.ErrNotExist}, exitUsage},
		{exitError{code: exitKeys, err: os.ErrNotExist}, exitKeys},
		{os.ErrNotExist, exitMissing},
		{unix.ENODEV, exitMissing},
		{fmt.Errorf("%w: %w", host.ErrNetdeviceGone, unix.EBADFD), exitMissing},
		{statussock.ErrNobody, exitMissing},
		{unix.EPERM, exitPermission},
		{&session.UntrustedError{}, exitKeys},
		{session.ErrSecurityMode, exitKeys},
		{unix.EADDRINUSE, exitAddressInUse},
		{fmt.Errorf("%w: %w", tap.ErrExists, unix.EBUSY), exitAddressInUse},
		{tap.ErrExists, exitAddressInUse}, // of a plain device
		{&session.VersionError{}, exitVersion},
	} {
		wrapped := c.err
		if wrapped != nil {
			wrapped = errors.Join(fmt.Errorf("wrapped: %w", c.err))
		}
		if got := exitStatus(wrapped); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
}

func TestReadConfig(t *testing.T) {
	for _, c := range []struct {
		text string
		ok   bool
	}{
		{"queues: 3\nspin: 20us\ntrust: [a, b]\nmetrics: \":1\"\n", true},
		{"metrics:\n", false},
		{"trust: [a, ]\nmetrics: {a: 1}\n", false},
		{"trust: [[a]]\n", false},
		{"queues: many\n", false},
		{"config: other\n", false},
	} {
		path := filepath.Join(t.TempDir(), "x.yaml")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := &cobra.Command{Use: "x"}
		var d daemonFlags
		d.add(cmd)
		cmd.Flags().IntVar(&d.queues, "queues", 1, "")
		_, err := readConfig(cmd, path)
		var usage usageError
		if c.ok != (err == nil) || err != nil && !errors.As(err, &usage) {
			t.Errorf("%q: %v", c.text, err)
		}
		if c.ok && (d.queues != 3 || len(d.trust) != 2 || d.metrics != ":1") {
			t.Errorf("%q: %+v", c.text, d)
		}
	}
}

func TestExplainListen(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, err = net.Listen("tcp", ln.Addr().String())
	if got := exitStatus(explainListen("--metrics", err)); got != exitAddressInUse {
		t.Errorf("status %d of %v", got, err)
	}
}

// TestServeStatusStops serves the status and metrics, and stops.
func TestServeStatusStops(t *testing.T) {
	d := daemonFlags{statusSocket: filepath.Join(t.TempDir(), "s"), metrics: "127.0.0.1:0"}
	stop, err := d.serveStatus("test", func() any { return 1 }, http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if _, err := os.Stat(d.statusSocket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

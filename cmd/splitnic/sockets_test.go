package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/statussock"
)

func TestHostSocket(t *testing.T) {
	for _, c := range []struct {
		args, sockets []string
		want          string
		status        int
	}{
		{[]string{"sn1"}, nil, "/run/splitnic/host-sn1.sock", 0},
		{[]string{"./x.sock"}, nil, "./x.sock", 0},
		{[]string{"host-sn1"}, nil, "/run/splitnic/host-sn1.sock", 0},
		{nil, []string{"/run/splitnic/host-sn0.sock", "/run/splitnic/iounit-7580.sock"}, "/run/splitnic/host-sn0.sock", 0},
		{nil, []string{"/run/splitnic/iounit-7580.sock"}, "", exit.Missing},
		{nil, []string{"/run/splitnic/host-a.sock", "/run/splitnic/host-b.sock"}, "", exit.Usage},
	} {
		got, err := daemonSocket("host", c.args, func() ([]string, error) { return c.sockets, nil })
		if got != c.want || exit.Status(err) != c.status {
			t.Errorf("%q of %q: %q, %v", c.args, c.sockets, got, err)
		}
	}
}

func TestSocketPath(t *testing.T) {
	for name, want := range map[string]string{
		"sn0": statussock.Path("host-sn0"), "host-sn0": statussock.Path("host-sn0"),
		"iounit-7580": statussock.Path("iounit-7580"),
		"/tmp/x":      "/tmp/x", "./x": "./x", "x.sock": "x.sock",
	} {
		if got := socketPath("host", name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// TestStatusOfNobody asks for the status where no half runs.
func TestStatusOfNobody(t *testing.T) {
	nobody := func() ([]string, error) { return nil, nil }
	for _, names := range [][]string{nil, {filepath.Join(t.TempDir(), "x.sock")}} {
		var out bytes.Buffer
		c := &cobra.Command{}
		c.SetOut(&out)
		c.SetContext(t.Context())
		if err := showStatus(c, names, nobody, true); exit.Status(err) != exit.Missing || out.String() != "[]\n" {
			t.Errorf("%q: %q, %v", names, out.String(), err)
		}
	}
}

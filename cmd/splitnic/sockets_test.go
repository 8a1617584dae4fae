package main

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"

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

// TestSocketAmong finds hosts by their netdevices and I/O units by their ports. It expects an
// error for a name that no process has.
func TestSocketAmong(t *testing.T) {
	there := []string{statussock.Path("host-sn0"), statussock.Path("iounit-7580"), statussock.Path("iounit-sn0")}
	for name, want := range map[string]string{
		"sn0": there[0], "7580": there[1], "iounit-sn0": there[2], "./x": "./x", "/tmp/x": "/tmp/x",
		"sn1": "", "7581": "", "iounit-7581": "", statussock.Path("host-sn1"): "",
	} {
		got, err := socketAmong(func() ([]string, error) { return there, nil }, name)
		if got != want || (err == nil) != (want != "") || err != nil && exit.Status(err) != exit.Missing {
			t.Errorf("%s is %q, %v; want %q", name, got, err, want)
		}
	}
}

// TestSocketsOr names processes of which one does not exist. It expects the sockets of the
// others, and an error.
func TestSocketsOr(t *testing.T) {
	there := []string{statussock.Path("host-sn0"), statussock.Path("iounit-7580")}
	got, err := socketsOr([]string{"sn0", "sn1", "7580"}, "status", func() ([]string, error) { return there, nil })
	if !slices.Equal(got, there) || exit.Status(err) != exit.Missing {
		t.Errorf("%q, %v", got, err)
	}
}

// TestStatusOfNobody reads the status where no process runs. It expects an empty list in JSON
// and an error.
func TestStatusOfNobody(t *testing.T) {
	nobody := func() ([]string, error) { return nil, nil }
	for _, names := range [][]string{nil, {filepath.Join(t.TempDir(), "x.sock")}} {
		var out bytes.Buffer
		f := statusFlags{json: true}
		if err := f.show(t.Context(), &out, names, nobody); exit.Status(err) != exit.Missing || out.String() != "[]\n" {
			t.Errorf("%q: %q, %v", names, out.String(), err)
		}
	}
}

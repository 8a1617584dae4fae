package main

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/iounit"
)

// serveUnit serves the status and the commands of an I/O unit in the drain state drain. A drain
// command that waits blocks until its client disconnects, unless no hosts remain. told, which
// may be nil, receives each command.
func serveUnit(t *testing.T, path string, drain *iounit.DrainStatus, told chan<- string) {
	t.Helper()
	tell := func(what string) {
		if told != nil {
			told <- what
		}
	}
	status := func() any { return iounit.Status{Role: "iounit", Drain: drain} }
	disconnect := func(_ context.Context, raw json.RawMessage) (any, error) {
		tell(string(raw))
		return struct{}{}, nil
	}
	server, err := statussock.Serve(path, status,
		statussock.Command{Name: daemon.CommandDrain, RunWith: func(ctx context.Context, raw json.RawMessage) (any, error) {
			var r daemon.DrainRequest
			if err := json.Unmarshal(raw, &r); err != nil {
				return nil, err
			}
			if r.Wait && (drain == nil || len(drain.Remaining) > 0) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			tell("drain")
			return drain, nil
		}},
		statussock.Command{Name: daemon.CommandUndrain, Run: func(context.Context) (any, error) {
			tell("undrain")
			return struct{}{}, nil
		}},
		statussock.Command{Name: daemon.CommandDisconnect, RunWith: disconnect})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
}

// TestDrain runs the commands drain, undrain and disconnect. It expects the I/O unit to receive
// them, and drain to print the remaining hosts.
func TestDrain(t *testing.T) {
	path, told := filepath.Join(t.TempDir(), "iounit-7580.sock"), make(chan string, 1)
	left := &iounit.DrainStatus{Remaining: []iounit.RemainingHost{{Name: "alpha"}, {Name: "beta", Stays: "no other"}}}
	serveUnit(t, path, left, told)
	for _, c := range []struct {
		line, told, prints string
	}{
		{"drain PATH", "drain", "iounit-7580: takes no hosts; 2 left\n  alpha\n  beta stays: no other\n"},
		{"undrain PATH", "undrain", ""},
		{"disconnect alpha.sn0 PATH", `"alpha.sn0"`, ""},
	} {
		root := rootCommand()
		var out strings.Builder
		root.SetOut(&out)
		root.SetArgs(append([]string{"iounit"}, strings.Fields(strings.ReplaceAll(c.line, "PATH", path))...))
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Fatalf("%s: %v", c.line, err)
		}
		if got := <-told; got != c.told || out.String() != c.prints {
			t.Errorf("%s: told %s, printed %q", c.line, got, out.String())
		}
	}
	if help, timeout := drainCommand().Long, drainCommand().Flag("timeout").DefValue; !strings.Contains(help, timeout) {
		t.Errorf("the help does not name %s, for which --wait waits:\n%s", timeout, help)
	}
	empty := filepath.Join(t.TempDir(), "iounit-1.sock")
	serveUnit(t, empty, &iounit.DrainStatus{}, nil)
	if err := execute(t, "iounit", "drain", empty, "--wait", "--timeout", "10m"); err != nil {
		t.Error(err)
	}
}

// TestDrainErrdoc expects documented errors of drains that fail.
func TestDrainErrdoc(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	serveUnit(t, in("iounit-1.sock"), &iounit.DrainStatus{Remaining: []iounit.RemainingHost{
		{Name: "alpha", Stays: "there is no other I/O unit"}, {Name: "beta"},
	}}, nil)
	serveUnit(t, in("iounit-2.sock"), nil, nil)
	serveHost(t, in("host.sock"), connected(), nil)
	for _, c := range []struct {
		name, line, want string
		status           int
	}{
		{"hosts are left", "drain iounit-1.sock --wait --timeout 50ms", "alpha stays: there is no other I/O unit; beta",
			exit.TimedOut},
		{"undrained", "drain iounit-2.sock --wait --timeout 50ms", "iounit-2 accepts hosts again", exit.Failure},
		{"host", "drain host.sock", "no such command", exit.Usage},
		{"without waiting", "drain iounit-1.sock --timeout 5m", "--timeout 5m0s: is the time-out of --wait", exit.Usage},
		{"no time", "drain iounit-1.sock --wait --timeout 0", "--timeout 0s: must be above 0", exit.Usage},
		{"whom", "disconnect", "HOST is missing", exit.Usage},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := strings.Fields(c.line)
			if len(args) > 1 {
				args[1] = in(args[1])
			}
			err := execute(t, append([]string{"iounit"}, args...)...)
			if exit.Status(err) != c.status || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("%v (status %d), want %q and %d", err, exit.Status(err), c.want, c.status)
			}
			testenv.Ended(t, c.status, err.Error())
		})
	}
}

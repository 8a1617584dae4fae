package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/host"
)

// serveHost serves the status of a host and the wait command, which returns when done is closed
// or its client disconnects.
func serveHost(t *testing.T, path string, s daemon.HostStatus, done <-chan struct{}) *statussock.Server {
	t.Helper()
	s.Role, s.Card, s.Netdevice.Name, s.Security.Platform = "host", "sn0", "eth0", 1
	server, err := statussock.Serve(path, func() any { return s }, statussock.Command{Name: daemon.CommandWait,
		Run: func(ctx context.Context) (any, error) {
			select {
			case <-done:
				return nil, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return server
}

func connected() (s daemon.HostStatus) {
	s.State, s.Netdevice.Carrier = host.Connected, true
	return s
}

// TestWait waits for a host that exists, and for one whose process starts, ends and starts again
// during the wait.
func TestWait(t *testing.T) {
	path := filepath.Join(t.TempDir(), "host-sn0.sock")
	waiting := func(args ...string) chan error {
		done := make(chan error, 1)
		go func() { done <- execute(t, append([]string{"wait", path, "--timeout", "10m"}, args...)...) }()
		return done
	}
	early := waiting("--connected")
	never := make(chan struct{})
	asked := make(chan struct{})
	first, err := statussock.Serve(path, func() any { return daemon.HostStatus{} }, statussock.Command{
		Name: daemon.CommandWait, Run: func(ctx context.Context) (any, error) {
			close(asked)
			<-ctx.Done()
			return nil, ctx.Err()
		}})
	if err != nil {
		t.Fatal(err)
	}
	<-asked
	first.Close() // the process is killed while a client waits
	now := make(chan struct{})
	close(now)
	serveHost(t, path, connected(), now)
	for what, done := range map[string]chan error{
		"for a process to come": early, "for both": waiting("--connected", "--carrier"), "for the process": waiting(),
	} {
		if err := <-done; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	// A condition that is already met needs no time.
	other := filepath.Join(t.TempDir(), "host-sn0.sock")
	s := connected()
	serveHost(t, other, s, never)
	if err := execute(t, "wait", other, "--connected", "--carrier", "--timeout", "0"); err != nil {
		t.Error(err)
	}
	for flag, want := range map[string]string{
		"--carrier": `{"done":true}`, "--connected": `{"done":false,"missing":"wait: sn0 `,
	} {
		s.State = map[string]host.State{"--carrier": host.Connected, "--connected": host.Connecting}[flag]
		at := filepath.Join(t.TempDir(), "host-sn0.sock")
		serveHost(t, at, s, never)
		out, err := executed(t, "wait", at, flag, "--json", "--timeout", "0")
		if out = strings.Join(strings.Fields(out), ""); !strings.HasPrefix(out, strings.ReplaceAll(want, " ", "")) ||
			(err == nil) != strings.Contains(want, "true") {
			t.Errorf("%s: %s, %v", flag, out, err)
		}
	}
	// The wait command does not return, but the condition is met at the timeout.
	if err := execute(t, "wait", other, "--connected", "--timeout", "1ms"); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (&waitFlags{Condition: daemon.Condition{Connected: true}, timeout: 1 << 40}).run(ctx,
		t.Output(), []string{other}, statussock.List); exit.Status(err) != exit.Failure {
		t.Errorf("interrupted: %v", err)
	}
}

// TestWaitForWhom waits without a name for the only host, which starts later. It expects a
// message that says what the command waits for.
func TestWaitForWhom(t *testing.T) {
	dir := t.TempDir()
	path, unit := filepath.Join(dir, "host-sn0.sock"), filepath.Join(dir, "iounit-7580.sock")
	serveHost(t, unit, connected(), nil)
	left := filepath.Join(dir, "iounit-7581.sock") // socket of a killed process
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: left})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
	var there atomic.Pointer[[]string]
	there.Store(&[]string{unit, left})
	list := func() ([]string, error) { return slices.Clone(*there.Load()), nil }
	said, w := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- (&waitFlags{timeout: 10 * time.Minute}).run(t.Context(), w, nil, list) }()
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil || !strings.Contains(line, "10m0s: no host runs on this machine") ||
		!strings.HasSuffix(line, "; there are: iounit-7580 (eth0)\n") {
		t.Errorf("%q, %v", line, err)
	}
	serveHost(t, path, connected(), nil)
	there.Store(&[]string{path, unit})
	if err := <-done; err != nil {
		t.Error(err)
	}
	// With several hosts, the user has to name one.
	serveHost(t, filepath.Join(dir, "host-sn1.sock"), connected(), nil)
	there.Store(&[]string{path, filepath.Join(dir, "host-sn1.sock")})
	severalErr := (&waitFlags{timeout: 10 * time.Minute}).run(t.Context(), t.Output(), nil, list)
	if exit.Status(severalErr) != exit.Usage {
		t.Error(severalErr)
	}
	for name, c := range map[string]struct {
		timeout time.Duration
		args    []string
	}{
		"at once": {0, nil}, "in time": {time.Millisecond, nil},
		"named at once": {0, []string{"sn7"}}, "named in time": {time.Millisecond, []string{"sn7"}},
	} {
		t.Run(name, func(t *testing.T) {
			nobody := func() ([]string, error) { return nil, nil }
			var said strings.Builder
			err := (&waitFlags{timeout: c.timeout}).run(t.Context(), &said, c.args, nobody)
			if exit.Status(err) != exit.TimedOut {
				t.Fatal(err)
			}
			if c.timeout == 0 && said.Len() > 0 {
				t.Errorf("who does not wait says %q", &said)
			}
			testenv.Ended(t, exit.TimedOut, err.Error())
		})
	}
}

// TestWaitErrdoc expects documented errors of waits that fail.
func TestWaitErrdoc(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	never := make(chan struct{})
	var s daemon.HostStatus
	s.State, s.LastError = host.Connecting, "connect to 10.0.0.1:7580: refused\nand again"
	serveHost(t, in("connecting.sock"), s, never)
	s = connected()
	s.Netdevice.Carrier = false
	serveHost(t, in("down.sock"), s, never)
	unit, err := statussock.Serve(in("unit.sock"), func() any { return map[string]string{"role": "iounit"} })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unit.Close() })
	ln, err := net.Listen("unix", in("stopped.sock")) // no process accepts connections
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	for _, c := range []struct {
		name, line, want string
		status           int
	}{
		{"nobody", "none.sock --timeout 0", "no process serves", exit.TimedOut},
		{"nobody for a while", "none.sock --connected --timeout 1ms", ", after 1ms", exit.TimedOut},
		{"no session", "connecting.sock --connected --timeout 1ms", "refused; and again, after 1ms", exit.TimedOut},
		{"no carrier", "down.sock --connected --carrier --timeout 0", "link of the I/O unit", exit.TimedOut},
		{"stopped", "stopped.sock --carrier --timeout 1ms", "is stopped or hangs", exit.TimedOut},
		{"I/O unit", "unit.sock --connected --timeout 1m", "are for hosts", exit.Usage},
		{"I/O unit at once", "unit.sock --connected --timeout 0", "are for hosts", exit.Usage},
		{"negative", "x.sock --timeout -1s", "--timeout -1s: must be 0 or more", exit.Usage},
		{"two", "x.sock y.sock", `unexpected argument "y.sock"`, exit.Usage},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			args := strings.Fields(c.line)
			args[0] = in(args[0])
			err := execute(t, append([]string{"wait"}, args...)...)
			if exit.Status(err) != c.status || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("%v (status %d), want %q and %d", err, exit.Status(err), c.want, c.status)
			}
			testenv.Ended(t, c.status, err.Error())
		})
	}
	if err := execute(t, "wait", in("unit.sock"), "--timeout", "0"); err != nil {
		t.Error(err)
	}
}

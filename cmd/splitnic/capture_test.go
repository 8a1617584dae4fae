package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/bpf"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/capture"
)

// serveCapture serves a process whose capture writes a few bytes. The capture ends by itself if
// byItself is set, otherwise with the command to end it. fails is the error with which the
// capture fails to start, or nil. asked receives the requests.
func serveCapture(t *testing.T, path string, byItself bool, fails error) (asked chan daemon.CaptureRequest) {
	t.Helper()
	asked = make(chan daemon.CaptureRequest, 2)
	end := make(chan string, 1)
	s, err := statussock.Serve(path, func() any { return 1 },
		statussock.Command{Name: daemon.CommandCapture, RunTo: func(
			ctx context.Context, argument json.RawMessage, w io.Writer,
		) (any, error) {
			var r daemon.CaptureRequest
			if err := json.Unmarshal(argument, &r); err != nil || fails != nil {
				return nil, errors.Join(err, fails)
			}
			fmt.Fprint(w, "frames")
			asked <- r
			if !byItself {
				if name := <-end; name != r.Name {
					t.Errorf("%q is to end, not %q", name, r.Name)
				}
			}
			fmt.Fprint(w, " and statistics")
			return capture.Status{Frames: 7, Dropped: 3}, ctx.Err()
		}},
		statussock.Command{Name: daemon.CommandEndCapture, RunWith: func(
			_ context.Context, name json.RawMessage,
		) (any, error) {
			var text string
			err := json.Unmarshal(name, &text)
			end <- text
			return struct{}{}, err
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return asked
}

func TestCaptureCommand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "host-sn0.sock")
	asked := serveCapture(t, path, true, nil)
	file := filepath.Join(t.TempDir(), "x.pcapng")
	run := func(args ...string) (out, complaint string) {
		t.Helper()
		var o, e bytes.Buffer
		root := rootCommand()
		root.SetOut(&o)
		root.SetErr(&e)
		root.SetArgs(append([]string{"capture", path}, args...))
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		return o.String(), e.String()
	}
	out, complaint := run("-c", "3", "-s", "96", "--path", "direct *", "--duration", "1s", "--buffer", "1M")
	if out != "frames and statistics" || complaint != "4 frames captured, 3 dropped\n" {
		t.Errorf("printed %q and %q", out, complaint)
	}
	got := <-asked
	if got.Frames != 3 || got.SnapLength != 96 || got.Paths != "direct *" || got.Duration != 1e9 || got.Buffer != 1<<20 {
		t.Errorf("asked for %+v", got)
	}
	if out, _ := run("-w", file); out != "" {
		t.Errorf("printed %q", out)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() == 0 {
		t.Errorf("the file: %+v, %v", info, err)
	}
	if other := <-asked; other.Name == got.Name || other.Name == "" {
		t.Errorf("two captures are called %q and %q", got.Name, other.Name)
	}
}

// TestCaptureInterrupted interrupts `splitnic capture` and expects a complete capture and no
// error.
func TestCaptureInterrupted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "host-sn0.sock")
	asked := serveCapture(t, path, false, nil)
	ctx, interrupt := context.WithCancel(t.Context())
	var out bytes.Buffer
	root := rootCommand()
	root.SetOut(&out)
	root.SetErr(io.Discard)
	root.SetArgs([]string{"capture", path})
	done := make(chan error)
	go func() { done <- root.ExecuteContext(ctx) }()
	<-asked
	interrupt()
	if err := <-done; err != nil || out.String() != "frames and statistics" {
		t.Errorf("printed %q, %v", &out, err)
	}
}

func TestCaptureErrdoc(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	serveCapture(t, in("full.sock"), true, capture.ErrTooMany)
	serveUnit(t, in("agent.sock"), nil, nil)
	for _, c := range []struct {
		name, line, want string
		status           int
	}{
		{"snap length", "x.sock -s 0", "--snap-length 0: must be 1 to", exit.Usage},
		{"duration", "x.sock --duration -1s", "must be 0 or more", exit.Usage},
		{"pattern", "x.sock --path [", "is no pattern", exit.Usage},
		{"buffer", "x.sock --buffer 1k", "--buffer 1k: must be 256KiB to", exit.Usage},
		{"size", "x.sock --buffer much", "is no size", exit.Usage},
		{"filter", "x.sock --filter is|wrong", "syntax error", exit.Usage},
		{"file", "full.sock --write " + in("no/such/x.pcapng"), "no such file", exit.Missing},
		{"agent", "agent.sock", "name one of its cards", exit.Usage},
		{"full", "full.sock", "4 captures are running", exit.Failure},
		{"nobody", "x.sock", "no process serves", exit.Missing},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "filter" {
				testenv.NeedTools(t, "tcpdump")
			}
			args := strings.Fields(c.line)
			args[0] = in(args[0])
			fails(t, execute(t, append([]string{"capture"}, args...)...), c.want, c.status)
		})
	}
	t.Run("terminal", func(t *testing.T) {
		terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
		if err != nil {
			testenv.Missing(t, "tools", "no terminal: %v", err)
		}
		defer terminal.Close()
		root := rootCommand()
		root.SetOut(terminal)
		root.SetArgs([]string{"capture", in("full.sock")})
		fails(t, root.ExecuteContext(t.Context()), "is a terminal", exit.Usage)
	})
	t.Run("cut off", func(t *testing.T) {
		begun := make(chan struct{})
		s, err := statussock.Serve(in("short.sock"), func() any { return 1 },
			statussock.Command{Name: daemon.CommandCapture, RunTo: func(
				ctx context.Context, _ json.RawMessage, w io.Writer,
			) (any, error) {
				fmt.Fprint(w, "frames")
				close(begun)
				<-ctx.Done()
				return nil, ctx.Err()
			}})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			<-begun
			s.Close()
		}()
		fails(t, execute(t, "capture", in("short.sock")), "has ended", exit.Failure)
	})
	t.Run("no tcpdump", func(t *testing.T) {
		t.Setenv("PATH", dir)
		fails(t, execute(t, "capture", in("x.sock"), "--filter", "icmp"), "install tcpdump", exit.Missing)
	})
}

// fails expects an error with this text and exit status, which the documentation explains.
func fails(t *testing.T, err error, want string, status int) {
	t.Helper()
	if err == nil || exit.Status(err) != status || !strings.Contains(err.Error(), want) {
		t.Fatalf("%v (status %d), want %q and %d", err, exit.Status(err), want, status)
	}
	testenv.Ended(t, status, err.Error())
}

// TestFilter compiles expressions with tcpdump and runs the programs on an ARP frame, untagged
// and tagged.
func TestFilter(t *testing.T) {
	testenv.NeedTools(t, "tcpdump")
	arp := append(bytes.Repeat([]byte{0xff}, 12), 8, 6, 0, 1)
	arp = append(arp, make([]byte, 48)...)
	tagged := append(append(bytes.Clone(arp[:12]), 0x81, 0, 0, 5), arp[12:]...)
	for expression, want := range map[string][2]bool{
		"arp": {true, false}, "not arp": {false, true}, "vlan 5 and arp": {false, true}, "vlan 6": {false, false},
		"broadcast and len < 65": {true, false},
	} {
		program, err := compileFilter(t.Context(), expression)
		if err != nil {
			t.Fatal(err)
		}
		var point capture.Point
		c, err := point.Start(capture.Config{Filter: program, Text: expression})
		if err != nil {
			t.Fatal(err)
		}
		c.End()
		all, _ := bpf.Disassemble(program)
		vm, err := bpf.NewVM(all)
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range [][]byte{arp, tagged} {
			if n, err := vm.Run(f); err != nil || (n > 0) != want[i] {
				t.Errorf("%q takes %d bytes of frame %d, %v, want %t", expression, n, i, err, want[i])
			}
		}
	}
}

// FuzzFilter parses the output of tcpdump, and other text.
func FuzzFilter(f *testing.F) {
	for _, s := range []string{
		"2\n40 0 0 12\n6 0 0 262144\n", "1\n6 0 0 0", "", "1", "1\n6 0 0", "2\n6 0 0 0", "4097\n6 0 0 0", "-1\n",
		"1\n6 0 0 4294967296",
		"1\n6 256 0 0",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		program, err := parseFilter(text)
		if err != nil {
			return
		}
		if n := len(program); n < 1 || n > maxFilter {
			t.Errorf("%d instructions", n)
		}
		var point capture.Point
		if c, err := point.Start(capture.Config{Filter: program, Buffer: capture.MinBuffer}); err == nil {
			c.End()
		}
	})
}

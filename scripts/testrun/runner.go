package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/splitnic/splitnic/internal/testlist"
)

// Builds of a kind share what they compile: without the race detector, also with the product.
var asProduct, noDWARF = []string{"-trimpath", "-buildmode=pie"}, "-gcflags=all=-dwarf=false" // a twelfth less time

// runner runs a layer.
type runner struct {
	top      string // of the checkout
	packages []testlist.Package
	all      []string // the flag of go test for all tests of the layer, unless only some are wanted
	skip     string   // pattern of tests that are left out
	when     string   // a file: the second guest waits until it exists, unless it is ""
	layer    string
	events   *events
}

// goTest runs tests in one go test. A test fails if something that require lists is missing.
func (r *runner) goTest(ctx context.Context, require string, tests []testlist.Package, args ...string) error {
	if len(tests) == 0 {
		return nil
	}
	// Tests wait for a part of their time, and take several times as long beside other work.
	args = append([]string{"-timeout=15m", "-p", strconv.Itoa(2 * runtime.NumCPU())}, args...)
	return r.pass(r.command(ctx, require, tests, args...))
}

// pass runs a go test and passes its events on. A test that fails is no error: its events say so.
func (r *runner) pass(cmd *exec.Cmd) error {
	out, err := cmd.StdoutPipe()
	if err := errors.Join(err, cmd.Start()); err != nil {
		return err
	}
	readErr := r.events.read(out)
	err = cmd.Wait()
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.ExitCode() == 1 {
		err = nil
	}
	return errors.Join(readErr, err)
}

// command returns the command go test for tests, unless args have another flag -run. Layers that
// share test binaries have no build tags.
func (r *runner) command(ctx context.Context, require string, tests []testlist.Package, args ...string) *exec.Cmd {
	var names, paths []string
	for _, p := range tests {
		names = append(names, p.Tests...)
		paths = append(paths, p.Path)
	}
	if r.layer == "pods" {
		args = append(args, "-tags", r.layer)
	}
	args = slices.Concat([]string{"test", "-json", "-count=1", "-vet=off", "-ldflags=-w", "-toolexec",
		"'" + r.top + "/scripts/linked'", "-skip", r.skip, "-run", "^(" + strings.Join(names, "|") + ")$"}, args, paths)
	cmd := command(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "SPLITNIC_REQUIRE="+require)
	return cmd
}

// command returns a command that gets SIGTERM when ctx ends, and then has 10 seconds to clean up.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = os.Stderr
	return cmd
}

// events passes the events of several go tests on to one gotestsum, and prints the progress.
type events struct {
	layer  string
	total  int // top-level tests
	start  time.Time
	ticker *time.Timer

	mu   sync.Mutex
	to   io.WriteCloser
	done int
	last string // the test that ended last
}

func newEvents(to io.WriteCloser, layer string, total int) *events {
	e := &events{to: to, layer: layer, total: total, start: time.Now(), last: "none yet"}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ticker = time.AfterFunc(10*time.Second, e.progress)
	return e
}

// progress prints how far the layer is.
func (e *events) progress() {
	e.mu.Lock()
	defer e.mu.Unlock()
	fmt.Fprintf(os.Stderr, "   %s: %d of %d tests after %v, the last: %s\n",
		e.layer, e.done, e.total, time.Since(e.start).Round(time.Second), e.last)
	e.ticker.Reset(10 * time.Second)
}

// read passes the events of one go test on. What is not an event goes to standard error.
func (e *events) read(from io.Reader) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		if err := e.event(append(lines.Bytes(), '\n')); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (e *events) event(line []byte) error {
	var event struct{ Action, Package, Test string }
	if json.Unmarshal(line, &event) != nil {
		_, err := os.Stderr.Write(line)
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	ended := slices.Contains([]string{"pass", "fail", "skip"}, event.Action)
	if ended && event.Test != "" && !strings.Contains(event.Test, "/") {
		e.done++
		e.last = testlist.Short(event.Package) + " " + event.Test
	}
	_, err := e.to.Write(line)
	return err
}

// close ends the lines about the progress, and the events.
func (e *events) close() error {
	e.ticker.Stop()
	return e.to.Close()
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// runUnit runs the tests that need nothing: all under the race detector, then
// those that it excludes. A build without cgo must succeed too.
func runUnit(ctx context.Context, r *runner) error {
	args := []string{"-race", "-skip", notUnit}
	if r.filter != nil {
		args = append(args, "-run", r.filter.String())
	}
	if err := r.goTest(ctx, nil, append(args, "./...")...); err != nil {
		return err
	}
	var paths, names []string
	for _, p := range r.packages {
		p.noRace = slices.DeleteFunc(p.noRace, func(name string) bool {
			return !r.wants(name) || strings.HasPrefix(name, netnsPrefix) || strings.HasPrefix(name, rdmaPrefix)
		})
		if len(p.noRace) > 0 {
			paths = append(paths, p.path)
			names = append(names, p.noRace...)
		}
	}
	if len(paths) > 0 {
		if err := r.goTest(ctx, nil, append([]string{"-run", exactly(names)}, paths...)...); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"build", "./..."}, {"vet", "./..."}} {
		cmd := command(ctx, "go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("CGO_ENABLED=0 %s: %w", strings.Join(cmd.Args, " "), err)
		}
	}
	return nil
}

// packageTimeout is for tests that hang and do not bound their waits themselves. A
// package may take ten times as long beside other work as on an idle machine.
const packageTimeout = "-timeout=30m"

// goTest runs go test with args and more environment.
func (r *runner) goTest(ctx context.Context, env []string, args ...string) error {
	cmd := command(ctx, "go", append([]string{"test", "-json", "-count=1", packageTimeout}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting go test: %w", err)
	}
	before := len(r.results)
	readErr := r.read(out, r.end)
	err = cmd.Wait()
	if readErr != nil {
		return fmt.Errorf("reading the output of go test: %w", readErr)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && r.failedSince(before) {
		return nil // as the results say
	}
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return nil
}

// failedSince reports whether a test failed after the first n results.
func (c *collector) failedSince(n int) bool {
	return slices.ContainsFunc(c.results[n:], func(r result) bool { return r.Outcome == failed })
}

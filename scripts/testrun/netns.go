package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// runNetns builds the tests of network namespaces as the user who calls and
// runs them as root.
func runNetns(ctx context.Context, r *runner) error {
	dir, err := filepath.Abs(filepath.Join(buildDir, "tests", "netns"))
	if err != nil {
		return err
	}
	packages := r.pick(netnsPrefix)
	binaries, err := r.compile(ctx, dir, packages, "-race")
	if err != nil {
		return err
	}
	for i, p := range packages {
		if binaries[i] == "" {
			continue
		}
		args := []string{
			"env", "SPLITNIC_REQUIRE=root,tun,tools", "PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin",
			binaries[i], "-test.v=test2json", "-test." + packageTimeout[1:], "-test.run=" + exactly(p.tests),
		}
		if os.Geteuid() != 0 {
			args = append([]string{"sudo"}, args...)
		}
		v, err := r.convert(ctx, p.path)
		if err != nil {
			return err
		}
		cmd := command(ctx, args[0], args[1:]...)
		cmd.Dir = p.dir
		cmd.Stdout, cmd.Stderr = v, v
		err = cmd.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			_, _ = fmt.Fprintln(v, err) // should that fail, close says so
		}
		if err := v.close(err == nil); err != nil {
			return err
		}
		r.unseen(p)
	}
	return nil
}

// compile makes a test binary of each package in dir and returns their names.
// A package that does not compile has failed; its name is empty.
func (r *runner) compile(ctx context.Context, dir string, packages []testPackage, flags ...string) ([]string, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("removing old test binaries: %w", err)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("making a place for test binaries: %w", err)
	}
	binaries := make([]string, len(packages))
	for i, p := range packages {
		name := filepath.Join(dir, strings.ReplaceAll(short(p.path), "/", "-")+".test")
		args := append([]string{"test", "-c", "-o", name}, flags...)
		if err := command(ctx, "go", append(args, p.path)...).Run(); err != nil {
			r.end(p.path, failed, 0)
			continue
		}
		binaries[i] = name
	}
	return binaries, nil
}

// conversion turns what a test binary prints into events, while it prints.
type conversion struct {
	c       *collector
	pkg     string
	start   time.Time
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	done    chan error
	outcome outcome // the binary's, by its output; valid after done
}

// convert begins a conversion for the package pkg. Until close, the collector
// must not be used otherwise.
func (c *collector) convert(ctx context.Context, pkg string) (*conversion, error) {
	v := &conversion{c: c, pkg: pkg, start: time.Now(), done: make(chan error, 1), outcome: failed}
	v.cmd = command(ctx, "go", "tool", "test2json", "-t", "-p", pkg)
	var err error
	if v.stdin, err = v.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	if err := v.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting go tool test2json: %w", err)
	}
	go func() {
		v.done <- c.read(out, func(_ string, o outcome, _ float64) { v.outcome = o })
	}()
	return v, nil
}

// Write takes some of the binary's output.
func (v *conversion) Write(b []byte) (int, error) { return v.stdin.Write(b) }

// close ends the package, which has failed unless ok is true and its output
// says so too.
func (v *conversion) close(ok bool) error {
	v.stdin.Close()
	readErr := <-v.done
	err := errors.Join(readErr, v.cmd.Wait())
	o := v.outcome
	if !ok || err != nil {
		o = failed
	}
	v.c.end(v.pkg, o, time.Since(v.start).Seconds())
	if err != nil {
		return fmt.Errorf("reading the output of %s: %w", v.pkg, err)
	}
	return nil
}

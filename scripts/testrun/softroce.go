package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// guestTimeout, in seconds, is how long all RDMA tests may take together. It is
// only for the case that they hang.
const guestTimeout = "3000"

// What ci/softroce/tests/packages.sh prints before and after a package's
// tests, followed by the import path and by the status.
const (
	packageMark = "### package "
	statusMark  = "### status "
)

// runSoftRoCE runs the tests that need RDMA devices, all in one run of the
// harness, and then those that start guests themselves.
func runSoftRoCE(ctx context.Context, r *runner) error {
	packages := r.pick(rdmaPrefix)
	if len(packages) > 0 {
		if err := r.runRDMA(ctx, packages); err != nil {
			r.broken("ci/softroce/run", err)
		}
	}
	guests := r.pick(guestPrefix)
	if runtime.GOARCH != "amd64" {
		fmt.Fprintf(r.w, "      the harness has guests on amd64 only: %s* left out\n", guestPrefix)
		return nil
	}
	for _, p := range guests {
		if err := r.goTest(ctx, []string{"SPLITNIC_REQUIRE=softroce"}, "-run", exactly(p.tests), p.path); err != nil {
			return err
		}
		r.unseen(p)
	}
	return nil
}

func (r *runner) runRDMA(ctx context.Context, packages []testPackage) error {
	// A guest shows the checkout, read-only, but not /tmp.
	dir := filepath.Join(buildDir, "tests", "softroce")
	binaries, err := r.compile(ctx, dir, packages)
	if err != nil {
		return err
	}
	var list bytes.Buffer
	var listed []string
	for i, p := range packages {
		if binaries[i] != "" {
			fmt.Fprintf(&list, "%s %s %s %s\n", p.path, p.dir, filepath.Base(binaries[i]), exactly(p.tests))
			listed = append(listed, p.path)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "packages"), list.Bytes(), 0o666); err != nil {
		return fmt.Errorf("writing the list of packages: %w", err)
	}

	cmd := command(ctx, "ci/softroce/run", "--timeout", guestTimeout, "ci/softroce/tests/packages.sh", dir)
	cmd.Env = append(os.Environ(), "SPLITNIC_REQUIRE=rdma,root,tun,tools,splitnic")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the harness: %w", err)
	}
	before := len(r.results)
	ended, readErr := r.split(ctx, out)
	err = cmd.Wait()
	for _, pkg := range listed {
		if !ended[pkg] {
			fmt.Fprintf(r.w, "FAIL  %s: its tests were not run\n", short(pkg))
			r.end(pkg, failed, 0)
		}
	}
	if readErr != nil {
		return readErr
	}
	for _, p := range packages {
		r.unseen(p)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 && r.failedSince(before) {
		return nil // as the results say
	}
	if err != nil {
		return fmt.Errorf("%w (ci/softroce/README.md lists the statuses; logs are in build/softroce/last)", err)
	}
	return nil
}

// split hands the output of each package in out to a conversion of its own and
// returns the packages that came to their end.
func (r *runner) split(ctx context.Context, out io.Reader) (ended map[string]bool, err error) {
	ended = make(map[string]bool)
	var v *conversion
	in := bufio.NewReader(out)
	for {
		line, readErr := in.ReadString('\n')
		switch pkg, isPackage := strings.CutPrefix(line, packageMark); {
		case isPackage && v == nil:
			if v, err = r.convert(ctx, strings.TrimSpace(pkg)); err != nil {
				_, _ = io.Copy(io.Discard, in) // so that the harness can end
				return ended, err
			}
		case v != nil && strings.HasPrefix(line, statusMark):
			status := strings.TrimSpace(strings.TrimPrefix(line, statusMark))
			ended[v.pkg] = true
			err = errors.Join(err, v.close(status == "0"))
			v = nil
		case v != nil:
			if _, werr := v.Write([]byte(line)); werr != nil {
				err = errors.Join(err, fmt.Errorf("converting output: %w", werr))
			}
		default:
			fmt.Fprint(r.w, line)
		}
		if readErr != nil {
			break
		}
	}
	if v != nil { // the guest died, or its time was over
		ended[v.pkg] = true
		err = errors.Join(err, v.close(false))
	}
	return ended, err
}

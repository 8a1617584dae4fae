package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/splitnic/splitnic/internal/testlist"
)

// divided has the number of parts of packages whose tests run in several guests at a time.
var divided = map[string]int{"test/e2e": 4}

// jobs returns the packages of the layer, or parts of them, in the order in which they run: parts
// first, because they take longest, then packages with the same kind of guest beside each other.
// The tests of the harness are last: they boot guests themselves.
func (r *runner) jobs() []testlist.Package {
	var parts, jobs, harness []testlist.Package
	for _, p := range r.packages {
		n := min(divided[testlist.Short(p.Path)], len(p.Tests))
		switch {
		case testlist.Short(p.Path) == "ci/softroce":
			if runtime.GOARCH == "amd64" { // the only one with guests
				harness = append(harness, p)
			}
		case n == 0:
			jobs = append(jobs, p)
		default:
			of := make([]testlist.Package, n)
			for i, test := range p.Tests { // neighbours take about the same time
				of[i%n] = testlist.Package{Path: p.Path, Tests: append(of[i%n].Tests, test)}
			}
			parts = append(parts, of...)
		}
	}
	kind := func(p testlist.Package) string { // as ci/softroce/exec determines it
		cpu, _ := os.ReadFile(filepath.Join(p.Dir, "testdata/guest-cpu"))
		smp, _ := os.ReadFile(filepath.Join(p.Dir, "testdata/guest-smp"))
		return string(cpu) + string(smp)
	}
	slices.SortStableFunc(jobs, func(a, b testlist.Package) int { return cmp.Compare(kind(b), kind(a)) })
	return slices.Concat(parts, jobs, harness)
}

// inGuests runs the tests of the layer in guests, or natively.
func (r *runner) inGuests(ctx context.Context) error {
	if r.layer == "packages" {
		prepare := command(ctx, "deploy/packages/prepare")
		prepare.Stdout = os.Stderr
		if err := prepare.Run(); err != nil {
			return fmt.Errorf("building packages, and a root to install them in: %w", err)
		}
	}
	jobs := r.jobs()
	next := make(chan testlist.Package, len(jobs))
	for _, j := range jobs {
		next <- j
	}
	close(next)
	errs := make([]error, r.guests)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = r.lane(ctx, string(rune('a'+i)), next) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// lane runs jobs one after the other, in the guest of a directory (ci/softroce/exec).
func (r *runner) lane(ctx context.Context, name string, jobs <-chan testlist.Package) error {
	dir := filepath.Join(r.top, "build/guests", name)
	defer endGuest(dir)
	for j := range jobs {
		const require = "rdma,root,tun,tools,splitnic,softroce,adapter"
		exec := filepath.Join(r.top, "ci/softroce/exec")
		cmd := r.command(ctx, require, []testlist.Package{j}, asProduct, "-timeout=45m", "-exec", exec)
		cmd.Env = append(cmd.Env, "SPLITNIC_GUEST="+dir, fmt.Sprint("SPLITNIC_GUEST_OWNER=", os.Getpid()))
		if err := errors.Join(r.pass(cmd), ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

// endGuest ends the guest of a directory, if there is one. It ends with this process at the latest.
func endGuest(dir string) {
	if os.WriteFile(filepath.Join(dir, "end"), nil, 0o666) != nil {
		return
	}
	for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(50 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(dir, "ended")); err == nil {
			return
		}
	}
}

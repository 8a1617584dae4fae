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

// jobs returns the packages of the layer, test/e2e in parts, in the order in which they run: parts
// first, because they take longest, then packages with the same kind of guest beside each other.
// The tests of the harness are last: they boot guests themselves.
func (r *runner) jobs() []testlist.Package {
	var parts, jobs, harness []testlist.Package
	for _, p := range r.packages {
		switch testlist.Short(p.Path) {
		case "ci/softroce":
			if runtime.GOARCH == "amd64" { // the only one with guests
				harness = append(harness, p)
			}
		case "test/e2e":
			of := make([]testlist.Package, min(4, len(p.Tests)))
			for i, test := range p.Tests { // neighbours take about the same time
				n := i % len(of)
				of[n] = testlist.Package{Path: p.Path, Tests: append(of[n].Tests, test)}
			}
			parts = append(parts, of...)
		default:
			jobs = append(jobs, p)
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
	var second error
	var wg sync.WaitGroup
	wg.Go(func() {
		r.await(ctx, next)
		second = r.lane(ctx, "b", next)
	})
	first := r.lane(ctx, "a", next)
	wg.Wait()
	return errors.Join(first, second)
}

// await returns when there may be a second guest, or no jobs are left.
func (r *runner) await(ctx context.Context, jobs <-chan testlist.Package) {
	for r.when != "" && len(jobs) > 0 && ctx.Err() == nil {
		if _, err := os.Stat(r.when); err == nil {
			return
		}
		time.Sleep(time.Second)
	}
}

// lane runs jobs one after the other, in the guest of a directory (ci/softroce/exec).
func (r *runner) lane(ctx context.Context, name string, jobs <-chan testlist.Package) error {
	dir := filepath.Join(r.top, "build/guests", name)
	defer endGuest(dir)
	for j := range jobs {
		args := append(slices.Clone(asProduct), "-timeout=45m", "-exec", filepath.Join(r.top, "ci/softroce/exec"))
		cmd := r.command(ctx, "rdma,root,tun,tools,splitnic,softroce,adapter", []testlist.Package{j}, args...)
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

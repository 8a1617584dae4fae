package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
)

// layer is a set of tests that run in the same environment.
type layer struct {
	name  string
	what  string
	run   func(context.Context, *runner) error
	extra bool // runs only if it is named
}

// layers has all layers, in the order in which they run by default.
var layers = []layer{
	{name: "unit", what: "without privileges", run: runUnit},
	{name: "netns", what: "as root, in network namespaces of their own", run: asRoot(netnsPrefix)},
	{name: "softroce", what: "on RDMA devices, and of the harness that has them", run: runSoftRoCE},
	{name: "machines", what: "with two guests that a cable joins", run: withMachines(machinesPrefix)},
	{name: "faults", what: "with two guests, which take longer", run: withMachines(faultsPrefix), extra: true},
	{name: "vm", what: "as root, with virtual machines at cards", run: asRoot(vmPrefix, "vm"), extra: true},
	{name: "pods", what: "as root, with container runtimes", run: asRoot(podsPrefix, "pods"), extra: true},
	{name: "packages", what: "on RDMA devices, of the packages in a clean root of Debian", run: runPackages, extra: true},
}

// Time limits of go test for a package. They end tests that hang and do not limit their waits
// themselves. A package may take several times as long beside other work as on an idle
// machine. The harness ends a guest a little later (ci/softroce/exec).
const (
	timeout      = "-timeout=15m"
	guestTimeout = "-timeout=45m" // of a package in an emulated guest
)

// runUnit runs the unit tests: first with the race detector, then those in files that are
// built only without the race detector.
func runUnit(ctx context.Context, r *runner) error {
	args := []string{"-race", "-skip", notUnit}
	if r.filter != nil {
		args = append(args, "-run", r.filter.String())
	}
	// Packages with the most tests begin first, so that none of them runs alone at the end.
	for _, p := range mostFirst(r.packages) {
		args = append(args, p.path)
	}
	if err := r.goTest(ctx, "", append(args, "./...")...); err != nil {
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
	if len(paths) == 0 {
		return nil
	}
	return r.goTest(ctx, "", append([]string{"-run", exactly(names)}, paths...)...)
}

// asRoot returns a function that builds the tests with the prefix as the calling user, and runs
// them as root. needs is added to their SPLITNIC_REQUIRE.
func asRoot(prefix string, needs ...string) func(context.Context, *runner) error {
	return func(ctx context.Context, r *runner) error {
		require := strings.Join(append([]string{"root", "tun", "tools"}, needs...), ",")
		path := "PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin"
		program := "env '" + path + "' SPLITNIC_REQUIRE=" + require
		if os.Geteuid() != 0 {
			program = "sudo " + program
		}
		return r.goTestOf(ctx, r.pick(prefix), require, "-race", "-exec", program)
	}
}

// runSoftRoCE runs the tests that need RDMA devices, each package in one or several runs of
// the harness. It also runs the tests of the harness, which start guests themselves.
func runSoftRoCE(ctx context.Context, r *runner) error {
	prefixes := []string{rdmaPrefix, guestPrefix}
	if runtime.GOARCH != "amd64" {
		fmt.Fprintf(r.w, "      the harness has guests on amd64 only: %s* left out\n", guestPrefix)
		prefixes = prefixes[:1]
	}
	return r.inHarness(ctx, prefixes...)
}

// runPackages builds the Debian packages, and runs the tests that install them.
func runPackages(ctx context.Context, r *runner) error {
	cmd := command(ctx, "deploy/packages/prepare")
	cmd.Stdout = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building packages, and a root to install them in: %w", err)
	}
	return r.inHarness(ctx, packagesPrefix)
}

// inHarness runs the tests with these prefixes in the harness (ci/softroce/exec).
func (r *runner) inHarness(ctx context.Context, prefixes ...string) error {
	program, err := filepath.Abs("ci/softroce/exec")
	if err != nil {
		return err
	}
	const require = "rdma,root,tun,tools,splitnic,softroce"
	packages := mostFirst(r.pick(prefixes...))
	var some errgroup.Group // limits the runs at a time
	some.SetLimit(parallelGuests)
	for _, g := range guestRuns(packages) {
		some.Go(func() error {
			release, err := lockGuest(ctx, guestLock)
			if err != nil {
				return err
			}
			defer release()
			command := fmt.Sprintf("'%s' --name %s", program, g.name)
			return r.inGuest(g.name, func() (*collector, error) {
				return r.tryTest(ctx, require, guestTimeout, "-exec", command, "-run", exactly(g.tests), g.path)
			})
		})
	}
	err = some.Wait()
	for _, p := range packages {
		r.unseen(p)
	}
	return err
}

// guestRun is a part of a package's tests that runs in a separate guest.
type guestRun struct {
	path, name string
	tests      []string
}

// guestRuns distributes the tests of packages to guests. Packages with several guests come
// first, because they take longest. Neighbouring tests take about the same time, and so go to
// different guests.
func guestRuns(packages []testPackage) []guestRun {
	var several, single []guestRun
	for _, p := range packages {
		name := strings.ReplaceAll(short(p.path), "/", "-")
		n := min(p.guests, len(p.tests))
		if n <= 1 {
			single = append(single, guestRun{p.path, name, p.tests})
			continue
		}
		parts := make([]guestRun, n)
		for i := range parts {
			parts[i] = guestRun{path: p.path, name: fmt.Sprintf("%s-%d", name, i+1)}
		}
		for i, test := range p.tests {
			parts[i%n].tests = append(parts[i%n].tests, test)
		}
		several = append(several, parts...)
	}
	return append(several, single...)
}

// withMachines returns a function that runs the tests with the prefix, which use two machines.
// The tests boot their guests themselves, even if this kernel has Soft-RoCE: one kernel is
// only one machine.
func withMachines(prefix string) func(context.Context, *runner) error {
	return func(ctx context.Context, r *runner) error {
		packages := r.pick(prefix)
		if len(packages) > 0 && runtime.GOARCH != "amd64" {
			return errors.New("the harness has guests on amd64 only; name the other layers to do without")
		}
		release, err := lockGuest(ctx, guestLock)
		if err != nil {
			return err
		}
		defer release()
		return r.goTestOf(ctx, packages, "machines")
	}
}

// mostFirst returns packages in order of their number of tests, largest first.
func mostFirst(packages []testPackage) []testPackage {
	return slices.SortedStableFunc(slices.Values(packages), func(a, b testPackage) int {
		return cmp.Compare(len(b.tests), len(a.tests))
	})
}

// goTestOf runs the tests of packages, packages with the most tests first. Each test that does
// not run counts as failed. require is the value of SPLITNIC_REQUIRE.
func (r *runner) goTestOf(ctx context.Context, packages []testPackage, require string, args ...string) error {
	if len(packages) == 0 {
		return nil
	}
	packages = mostFirst(packages)
	var paths, names []string
	for _, p := range packages {
		paths = append(paths, p.path)
		names = append(names, p.tests...)
	}
	err := r.goTest(ctx, require, slices.Concat(args, []string{"-run", exactly(names)}, paths)...)
	for _, p := range packages {
		r.unseen(p)
	}
	return err
}

// goTest runs go test with args and adds the results. A test fails if something that require
// lists is missing. Several goroutines may call goTest at the same time.
func (r *runner) goTest(ctx context.Context, require string, args ...string) error {
	part, err := r.tryTest(ctx, require, args...)
	r.add(part)
	return err
}

// tryTest runs go test like goTest, and returns the results without adding them.
func (r *runner) tryTest(ctx context.Context, require string, args ...string) (*collector, error) {
	of := r.another()
	// Tests wait for a part of their time: twice as many packages as processors run at a time.
	atOnce := strconv.Itoa(2 * runtime.NumCPU())
	cmd := command(ctx, "go", append([]string{"test", "-json", "-count=1", "-vet=off", "-p", atOnce, timeout}, args...)...)
	if require != "" {
		cmd.Env = append(os.Environ(), "SPLITNIC_REQUIRE="+require)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return of, fmt.Errorf("making a pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return of, fmt.Errorf("starting go test: %w", err)
	}
	readErr := of.read(out)
	err = cmd.Wait()
	if readErr != nil {
		return of, fmt.Errorf("reading the output of go test: %w", readErr)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && of.failed() {
		return of, nil // the failure is in the results
	}
	if err != nil {
		return of, fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return of, nil
}

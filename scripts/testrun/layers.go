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
	"strings"
	"syscall"
	"time"
)

// layer is one set of tests and the place they run.
type layer struct {
	name  string
	what  string
	run   func(context.Context, *runner) error
	extra bool // runs only when it is named
}

// layers are all there are, in the order they run.
var layers = []layer{
	{name: "unit", what: "without privileges", run: runUnit},
	{name: "netns", what: "as root, in network namespaces of their own", run: asRoot(netnsPrefix)},
	{name: "softroce", what: "on RDMA devices, and of the harness that has them", run: runSoftRoCE},
	{name: "machines", what: "with two guests that a cable joins", run: withMachines(machinesPrefix)},
	{name: "faults", what: "with two guests, which take longer", run: withMachines(faultsPrefix), extra: true},
	{name: "vhost-guest", what: "as root, with a guest at a vhost-user port", run: asRoot(vmPrefix, "vm"), extra: true},
}

// A package's tests are ended after so long, for those that hang and do not bound their
// waits themselves. A package may take some times as long beside other work as on an
// idle machine. The harness ends a guest a little later (ci/softroce/exec).
const (
	timeout      = "-timeout=15m"
	guestTimeout = "-timeout=45m" // of one that runs in an emulated guest
)

// runUnit runs the tests that need nothing: all under the race detector, then
// those that it excludes. A build without cgo must succeed too.
func runUnit(ctx context.Context, r *runner) error {
	args := []string{"-race", "-skip", notUnit}
	if r.filter != nil {
		args = append(args, "-run", r.filter.String())
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
	if len(paths) > 0 {
		if err := r.goTest(ctx, "", append([]string{"-run", exactly(names)}, paths...)...); err != nil {
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

// asRoot builds the tests with that prefix as the user who calls and runs them as root.
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

// runSoftRoCE runs the tests that need RDMA devices, two packages at a time, each
// in a run of the harness, and those of the harness, which start guests themselves.
func runSoftRoCE(ctx context.Context, r *runner) error {
	prefixes := []string{rdmaPrefix, guestPrefix}
	if runtime.GOARCH != "amd64" {
		fmt.Fprintf(r.w, "      the harness has guests on amd64 only: %s* left out\n", guestPrefix)
		prefixes = prefixes[:1]
	}
	program, err := filepath.Abs("ci/softroce/exec")
	if err != nil {
		return err
	}
	return r.goTestOf(ctx, r.pick(prefixes...), "rdma,root,tun,tools,splitnic,softroce", guestTimeout, "-p=2", "-exec",
		"'"+program+"'")
}

// withMachines runs the tests with two machines. They boot their guests
// themselves, also where the kernel has Soft-RoCE: one kernel is one machine.
func withMachines(prefix string) func(context.Context, *runner) error {
	return func(ctx context.Context, r *runner) error {
		packages := r.pick(prefix)
		if len(packages) > 0 && runtime.GOARCH != "amd64" {
			return errors.New("the harness has guests on amd64 only; name the other layers to do without")
		}
		return r.goTestOf(ctx, packages, "machines")
	}
}

// goTestOf runs the tests of packages, those with the most tests first, and
// wants all of them to run. SPLITNIC_REQUIRE is require.
func (r *runner) goTestOf(ctx context.Context, packages []testPackage, require string, args ...string) error {
	if len(packages) == 0 {
		return nil
	}
	packages = slices.SortedStableFunc(slices.Values(packages), func(a, b testPackage) int {
		return cmp.Compare(len(b.tests), len(a.tests))
	})
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

// goTest runs go test with args. Tests fail that do not find what require lists.
func (r *runner) goTest(ctx context.Context, require string, args ...string) error {
	cmd := command(ctx, "go", append([]string{"test", "-json", "-count=1", timeout}, args...)...)
	if require != "" {
		cmd.Env = append(os.Environ(), "SPLITNIC_REQUIRE="+require)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting go test: %w", err)
	}
	before := len(r.results)
	readErr := r.read(out)
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

// command returns a command that an interrupt ends as Ctrl-C would, with 10
// seconds to clean up. Its standard error is ours.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = os.Stderr
	return cmd
}

// Command testrun runs a layer of tests under gotestsum. scripts/test builds and starts it;
// scripts/testreport judges what it has run.
//
//	testrun [-all] [-run REGEXP] [-when FILE] LAYER
//
// What gotestsum cannot do, and testrun adds:
//
//   - gotestsum runs one go test. A layer has several: by race detector, and by package in guests.
//   - It knows no guests. testrun runs packages in them, again if the emulation killed the guest.
//   - It does not know how many tests are to come. testrun prints the progress.
//   - It cannot leave tests out by a list. testrun leaves those that docs/testing.md lists as
//     long to -all.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/splitnic/splitnic/internal/testlist"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	}
}

// run runs the tests of the layer that the arguments name. A test that fails is no error.
func run(ctx context.Context) error {
	filter := flag.String("run", "", "only the top-level tests whose names match this `regexp`")
	when := flag.String("when", "", "run only one guest until this `file` exists; an emulated one uses a processor")
	all := flag.Bool("all", false, "also the tests that docs/testing.md lists as long")
	flag.Parse()
	wanted, err := regexp.Compile(*filter)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	var long []string
	if !*all {
		page, err := os.ReadFile(testlist.LongPage)
		if err != nil {
			return err
		}
		if long, err = testlist.Long(string(page)); err != nil {
			return err
		}
	}
	layer := flag.Arg(0)
	packages, err := testlist.Packages(ctx, func(test string) bool {
		isLong := slices.ContainsFunc(long, func(l string) bool { return testlist.Covers(l, test) })
		return testlist.LayerOf(test) == layer && wanted.MatchString(test) && !isLong
	})
	if err != nil {
		return err
	}
	total := 0
	var plan strings.Builder // for testreport
	for _, p := range packages {
		total += len(p.Tests)
		for _, test := range p.Tests {
			fmt.Fprintf(&plan, "run %s %s %s\n", layer, p.Path, test)
		}
	}
	for _, test := range long {
		fmt.Fprintf(&plan, "long %s\n", test)
	}
	file := filepath.Join("build/events", layer) // gets the plan, the events and the seconds
	if err := os.WriteFile(file+".plan", []byte(plan.String()), 0o666); err != nil {
		return err
	}
	fmt.Printf("\n== %s: %d tests\n", layer, total)
	// gotestsum gets the events of all go tests from cat.
	sum := command(context.WithoutCancel(ctx), "build/gotestsum", "--format", "pkgname-and-test-fails",
		"--format-hide-empty-pkg", "--hide-summary", "skipped,output", "--jsonfile", file+".jsonl", "--raw-command", "cat")
	sum.Stdout = os.Stdout
	pipe, err := sum.StdinPipe()
	if err := errors.Join(err, sum.Start()); err != nil {
		return err
	}
	r := &runner{layer: layer, packages: packages, when: *when, events: newEvents(pipe, layer, total)}
	if r.top, err = os.Getwd(); err != nil {
		return err
	}
	pattern, skip := testlist.Patterns(layer, long)
	if r.skip = skip; *filter == "" {
		r.all = []string{"-run", pattern}
	}
	start := time.Now()
	if err := errors.Join(r.run(ctx), r.events.close(), sum.Wait()); err != nil {
		return err
	}
	return os.WriteFile(file+".seconds", fmt.Appendf(nil, "%.1f\n", time.Since(start).Seconds()), 0o666)
}

// run runs the tests in the environment that their layer needs.
func (r *runner) run(ctx context.Context) error {
	switch r.layer {
	case "unit":
		return r.unit(ctx)
	case "netns":
		return r.asRoot(ctx, "root,tun,tools")
	case "vm", "pods":
		return r.asRoot(ctx, "root,tun,tools,"+r.layer)
	case "machines", "faults":
		return r.goTest(ctx, "machines", r.packages, asProduct...)
	default:
		return r.inGuests(ctx)
	}
}

// unit runs the tests with the race detector, but for those in files that are built without it.
func (r *runner) unit(ctx context.Context) error {
	race, plain, some := testlist.Divide(r.packages)
	return errors.Join(r.goTest(ctx, "", race, append(r.all, "-race", noDWARF)...),
		r.goTest(ctx, "", plain, append(r.all, asProduct...)...), r.goTest(ctx, "", some, asProduct...))
}

// asRoot builds the tests as the calling user, and runs them as root.
func (r *runner) asRoot(ctx context.Context, require string) error {
	program := "env 'PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin' SPLITNIC_REQUIRE=" + require
	if os.Geteuid() != 0 {
		program = "sudo " + program
	}
	return r.goTest(ctx, require, r.packages, append(r.all, "-race", noDWARF, "-exec", program)...)
}

// Command testrun runs the layers of tests, each in the environment that its tests need, and
// adds up the results. scripts/test builds and starts testrun.
//
//	testrun [-run REGEXP] [LAYER...]
//
// It prints a table at the end, and writes build/test.json and build/tests.jsonl. It exits with
// status 1 in these cases:
//
//   - A test failed.
//   - A layer ran no test.
//   - docs/claims, docs/security.md, docs/attacks.md or docs/troubleshooting.md names a test of
//     these layers that did not pass.
//   - A test did not produce the message for which docs/troubleshooting.md names the test.
//   - A test was skipped, and CI or SPLITNIC_STRICT is set.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/splitnic/splitnic/internal/errdoc"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: scripts/test [-run REGEXP] [LAYER...]\nlayers:")
	for _, l := range layers {
		more := ""
		if l.extra {
			more = " (only when it is named)"
		}
		fmt.Fprintf(os.Stderr, "  %-10s tests %s%s\n", l.name, l.what, more)
	}
	fmt.Fprintln(os.Stderr, "  -run REGEXP  only the top-level tests whose names match")
}

// run runs the layers that args name, and reports whether all is well.
func run(ctx context.Context, args []string) (bool, error) {
	flags := flag.NewFlagSet("testrun", flag.ExitOnError)
	flags.Usage = usage
	filter := flags.String("run", "", "")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	chosen, err := chooseLayers(flags.Args())
	if err != nil {
		return false, err
	}
	r := &runner{}
	if *filter != "" {
		if r.filter, err = regexp.Compile(*filter); err != nil {
			return false, fmt.Errorf("-run: %w", err)
		}
	}
	if r.packages, err = listPackages(ctx); err != nil {
		return false, err
	}
	// Tests of any layer may start the product's binary.
	build := command(ctx, "make", "--no-print-directory", "build")
	build.Stdout = os.Stderr
	if err := build.Run(); err != nil {
		return false, fmt.Errorf("make build: %w", err)
	}
	rep := report{strict: strict(os.Getenv)}
	explained := make(map[string][]string)
	for _, l := range chosen {
		fmt.Printf("== %s: tests %s\n", l.name, l.what)
		r.collector = newCollector(os.Stdout, l.name)
		start := time.Now()
		if err := l.run(ctx, r); err != nil {
			r.broken(l.name, err)
		}
		rep.add(l.name, r.results, time.Since(start))
		if r.repeated != "" {
			rep.repeats = append(rep.repeats, r.repeated)
		}
		maps.Copy(explained, r.explains)
		if ctx.Err() != nil {
			return false, errors.New("interrupted")
		}
	}
	pages, err := filepath.Glob(filepath.Join(claimsDir, "*.md"))
	if err != nil {
		return false, fmt.Errorf("listing %s: %w", claimsDir, err)
	}
	rep.claims = checkPages(pages)
	for _, d := range documents {
		doc, err := os.ReadFile(d.page())
		if err != nil {
			return false, fmt.Errorf("reading which tests show what document %s claims: %w", d.name, err)
		}
		rep.shown = append(rep.shown, d.count(parseClaims(d.page(), string(doc))))
		rep.claims = append(rep.claims, r.claims(d, string(doc), rep.names, rep.results)...)
	}
	for _, file := range defenceFiles {
		doc, err := os.ReadFile(file)
		if err != nil {
			return false, fmt.Errorf("reading which tests show what is defended: %w", err)
		}
		rep.claims = append(rep.claims, r.defended(file, string(doc), rep.names, rep.results)...)
	}
	doc, err := os.ReadFile(errdoc.Page)
	if err != nil {
		return false, fmt.Errorf("reading which tests produce which message: %w", err)
	}
	rep.claims = append(rep.claims, r.documented(string(doc), errdoc.Tests, rep.names, rep.results, explained)...)
	return rep.finish(os.Stdout, buildDir)
}

// chooseLayers returns the layers with these names. Without names, it returns all layers except
// the extra ones.
func chooseLayers(names []string) ([]layer, error) {
	var chosen []layer
	if len(names) == 0 {
		return slices.DeleteFunc(slices.Clone(layers), func(l layer) bool { return l.extra }), nil
	}
next:
	for _, name := range names {
		for _, l := range layers {
			if l.name == name {
				chosen = append(chosen, l)
				continue next
			}
		}
		return nil, fmt.Errorf("there is no layer %q: use %s", name, layerNames())
	}
	return chosen, nil
}

func layerNames() string {
	names := make([]string, len(layers))
	for i, l := range layers {
		names[i] = l.name
	}
	return strings.Join(names, ", ")
}

// strict reports whether a skipped test fails the run.
func strict(getenv func(string) string) bool {
	ci := getenv("CI")
	return getenv("SPLITNIC_STRICT") != "" || (ci != "" && ci != "false")
}

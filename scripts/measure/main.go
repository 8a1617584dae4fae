// Command measure runs the benchmarks, and makes results.json, tables and plots of
// what they measured: see docs/benchmarks.md.
//
//	measure native [FLAGS]             the suite bench-native
//	measure attacks-native [CLASS...]  bench-attacks-native
//	measure hosts [FLAGS]              bench-hosts
//	measure run SUITE COMMAND...       another suite: COMMAND appends to samples.jsonl
//	measure show FILE                  the tables of a results.json, in Markdown
//
// Each takes -rounds (or ROUNDS), -dir and -markdown. For scripts there are:
//
//	measure iperf-tcp|iperf-udp|ping         figures from a program's output
//	measure overload KIND FROM TO ADDRESS    too many datagrams between two namespaces
//	measure serve SUBJECT NAMESPACE... NIC   the process of a subject of bench-native
//	measure classes                          the classes of attacks
//	measure hostile [FLAGS] CLASS            a host that attacks until SIGTERM
//	measure demo RESULTS JSON                the demonstration's table and document
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/splitnic/splitnic/scripts/measure/attacks"
	"github.com/splitnic/splitnic/scripts/measure/failover"
	"github.com/splitnic/splitnic/scripts/measure/hosts"
	"github.com/splitnic/splitnic/scripts/measure/native"
	"github.com/splitnic/splitnic/scripts/measure/results"
	"github.com/splitnic/splitnic/scripts/measure/softroce"
	"github.com/splitnic/splitnic/scripts/measure/tools"
	classes "github.com/splitnic/splitnic/test/attacks"
)

// suites are all there are.
var suites = []*results.Suite{
	softroce.Suite(), native.Suite(), attacks.Suite("bench-attacks"), attacks.Suite("bench-attacks-native"),
	hosts.Suite(), failover.Suite(), failover.Restarts(),
}

func suiteOf(name string) (*results.Suite, error) {
	i := slices.IndexFunc(suites, func(s *results.Suite) bool { return s.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no suite %q", name)
	}
	return suites[i], nil
}

// commands are the sub-commands, by name.
var commands = map[string]func(ctx context.Context, args []string) error{
	"native":         nativeSuite,
	"attacks-native": attackSuite,
	"hosts":          hostSuite,
	"run":            otherSuite,
	"show":           show,
	"overload":       overload,
	"serve": func(_ context.Context, args []string) error {
		if len(args) < 1 {
			return errUsage
		}
		return native.Serve(args[0], args[1:])
	},
	"classes": func(context.Context, []string) error {
		for _, c := range classes.Classes() {
			fmt.Println(c.Name)
		}
		return nil
	},
	"hostile": attacks.Hostile,
	"demo": func(_ context.Context, args []string) error {
		if len(args) != 2 {
			return errUsage
		}
		return tools.Demo(args[0], args[1])
	},
}

var errUsage = errors.New("usage: see the comment in scripts/measure/main.go")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	if filter := tools.Filters[args[0]]; filter != nil {
		figures, err := filter(os.Stdin)
		if err == nil {
			_, err = fmt.Println(figures)
		}
		return err
	}
	command := commands[args[0]]
	if command == nil {
		return errUsage
	}
	return command(ctx, args[1:])
}

// suite begins to read the command line of a suite: further flags can be added.
func suite(name string) (*flag.FlagSet, *results.Run, error) {
	s, err := suiteOf(name)
	if err != nil {
		return nil, nil, err
	}
	r := &results.Run{Suite: s, Rounds: s.Rounds}
	if text := os.Getenv("ROUNDS"); text != "" {
		if r.Rounds, err = strconv.Atoi(text); err != nil {
			return nil, nil, fmt.Errorf("ROUNDS: %w", err)
		}
	}
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.IntVar(&r.Rounds, "rounds", r.Rounds, "how often everything is measured, in turn")
	flags.StringVar(&r.Dir, "dir", filepath.Join("build", name), "directory for the results")
	flags.BoolVar(&r.Markdown, "markdown", false, "show the tables in Markdown")
	return flags, r, nil
}

// parse reads the command line.
func parse(flags *flag.FlagSet, r *results.Run, args []string) error {
	err := flags.Parse(args)
	if err == nil && r.Rounds < 1 {
		err = fmt.Errorf("%d rounds: must be 1 at least", r.Rounds)
	}
	return err
}

func nativeSuite(ctx context.Context, args []string) error {
	flags, r, err := suite("bench-native")
	if err != nil {
		return err
	}
	var o native.Options
	var only string
	flags.StringVar(&only, "only", os.Getenv("BENCH_ONLY"),
		"what to measure: parts of names of subjects and measurements, or SUBJECT:MEASUREMENT, separated by commas")
	flags.StringVar(&o.Profiles, "cpuprofile", "", "directory for profiles of splitnic's use of processors")
	if err := parse(flags, r, args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%q: there are only flags", flags.Args())
	}
	o.Rounds, o.Only = r.Rounds, results.ParseSelection(only)
	return r.Do(ctx, o.Measure)
}

func attackSuite(ctx context.Context, args []string) error {
	flags, r, err := suite("bench-attacks-native")
	if err != nil {
		return err
	}
	if err := parse(flags, r, args); err != nil {
		return err
	}
	return r.Do(ctx, func(ctx context.Context, rec *results.Recorder) error {
		return attacks.Native(ctx, rec, r.Rounds, flags.Args())
	})
}

func hostSuite(ctx context.Context, args []string) error {
	flags, r, err := suite("bench-hosts")
	if err != nil {
		return err
	}
	var o hosts.Options
	o.Flags(flags)
	if err := parse(flags, r, args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%q: there are only flags", flags.Args())
	}
	return r.Do(ctx, func(ctx context.Context, rec *results.Recorder) error { return o.Measure(ctx, rec, r.Rounds) })
}

// otherSuite has a program measure.
func otherSuite(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	flags, r, err := suite(args[0])
	if err != nil {
		return err
	}
	if err := parse(flags, r, args[1:]); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errUsage
	}
	return r.Do(ctx, func(ctx context.Context, _ *results.Recorder) error {
		c := exec.CommandContext(ctx, flags.Arg(0), flags.Args()[1:]...)
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
		c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
		if err := c.Run(); err != nil {
			return fmt.Errorf("%s: %w; logs are in %s", strings.Join(flags.Args(), " "), err, r.Dir)
		}
		return nil
	})
}

func show(_ context.Context, args []string) error {
	if len(args) != 1 {
		return errUsage
	}
	f, err := results.Load(args[0])
	if err != nil {
		return err
	}
	s, err := suiteOf(f.Suite)
	if err != nil {
		return err
	}
	return s.Markdown(os.Stdout, &f)
}

func overload(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("overload", flag.ContinueOnError)
	d := flags.Duration("time", 400*time.Millisecond, "how long each factor is measured")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 4 {
		return errUsage
	}
	return native.OverloadOnce(ctx, flags.Arg(0), flags.Arg(1), flags.Arg(2), flags.Arg(3), *d, os.Stdout)
}

// Command measure runs the benchmarks, and makes results.json and tables from their figures: see
// docs/benchmarks.md.
//
//	measure SUITE [-rounds N] [-dir DIR] [FLAGS] [ARGUMENTS]
//
// A suite has the name of its target in the Makefile. The arguments of a suite on RDMA devices
// are the command that measures. Other sub-commands are:
//
//	measure show FILE                        the tables of a results.json
//	measure iperf-tcp|iperf-udp|ping|direct  figures from a program's output
//	measure serve SUBJECT NAMESPACE... NIC   the process of a subject of bench-native
//	measure demo RESULTS JSON                the demonstration's table and document
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/splitnic/splitnic/scripts/measure/attacks"
	"github.com/splitnic/splitnic/scripts/measure/hosts"
	"github.com/splitnic/splitnic/scripts/measure/native"
	"github.com/splitnic/splitnic/scripts/measure/results"
	"github.com/splitnic/splitnic/scripts/measure/softroce"
	"github.com/splitnic/splitnic/scripts/measure/tools"
)

// suites has all suites.
var suites = []*results.Suite{
	softroce.Suite(), native.Suite(), attacks.Suite(), hosts.Suite(), softroce.Failover(), softroce.Restarts(),
}

// commands has the other sub-commands, by name. args is the number of arguments.
var commands = map[string]struct {
	args int
	run  func(ctx context.Context, args []string) error
}{
	"show": {1, func(_ context.Context, args []string) error {
		f, err := results.Load(args[0])
		if err != nil {
			return err
		}
		return f.Write(os.Stdout)
	}},
	"serve": {5, func(ctx context.Context, args []string) error { return native.Serve(ctx, args[0], args[1:]) }},
	"demo":  {2, func(_ context.Context, args []string) error { return tools.Demo(args[0], args[1]) }},
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
	name, args := args[0], args[1:]
	if i := slices.IndexFunc(suites, func(s *results.Suite) bool { return s.Name == name }); i >= 0 {
		return suite(ctx, suites[i], args)
	}
	if filter := tools.Filters[name]; filter != nil {
		figures, err := filter(os.Stdin)
		if err == nil {
			_, err = fmt.Println(figures)
		}
		return err
	}
	command, ok := commands[name]
	if !ok || len(args) != command.args {
		return errUsage
	}
	return command.run(ctx, args)
}

// suite measures s.
func suite(ctx context.Context, s *results.Suite, args []string) (err error) {
	r := &results.Run{Suite: s, Rounds: s.Rounds}
	if text := os.Getenv("ROUNDS"); text != "" {
		if r.Rounds, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("ROUNDS: %w", err)
		}
	}
	flags := flag.NewFlagSet(s.Name, flag.ContinueOnError)
	flags.IntVar(&r.Rounds, "rounds", r.Rounds, "how often everything is measured, in turn")
	flags.StringVar(&r.Dir, "dir", filepath.Join("build", s.Name), "directory for the results")
	if s.Flags != nil {
		s.Flags(flags)
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if r.Rounds < 1 {
		return fmt.Errorf("%d rounds: must be 1 at least", r.Rounds)
	}
	return r.Do(ctx, flags.Args())
}

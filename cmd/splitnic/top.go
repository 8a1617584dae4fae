package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/render"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/top"
	"github.com/splitnic/splitnic/internal/statussock"
)

type topFlags struct {
	interval time.Duration
	order    string
	count    int
	once     bool
	totals   bool
	asJSON   bool
}

func orderNames() string { return strings.Join(words(top.Orders()), ", ") }

func topCommand() *cobra.Command {
	var f topFlags
	c := &cobra.Command{
		Use:   "top [NAME…]",
		Short: "Show the rates of the cards on this machine",
		Long: `Show the rates of the cards on this machine, by queue and path: the queues of the session
with the I/O unit, and each direct connection to another host. Below an I/O unit there
is a card for each of its hosts. OUT is the traffic that programs of the host send. DROP
counts dropped frames, WAIT counts the waits of a queue for credit or a rate limit.

Without arguments it queries every process with its socket in ` + statussock.Dir + `. ` + whichNames + `

In a terminal, q quits; n, o, i, p and d sort, t hides the paths. If the output is not a
terminal, or with --count, it prints a table at each interval.`,
		Example: `  splitnic top
  splitnic top --once --sort out
  splitnic top sn0 --interval 5s --count 12`,
		RunE: func(cmd *cobra.Command, names []string) error { return f.run(cmd, names, statussock.List) },
	}
	c.Flags().DurationVar(&f.interval, "interval", 2*time.Second, "interval over which rates are measured")
	c.Flags().StringVar(&f.order, "sort", string(top.ByName), "sort order: "+orderNames())
	completeFlag(c, "sort", oneOf(words(top.Orders())...))
	c.Flags().IntVar(&f.count, "count", 0, "print this many tables (default: until interrupted)")
	boolVar(c.Flags(), &f.once, "once", false, "print one table, as --count 1")
	boolVar(c.Flags(), &f.totals, "totals", false, "one line for each card")
	boolVar(c.Flags(), &f.asJSON, "json", false, "print one table as JSON")
	return c
}

func (f *topFlags) run(cmd *cobra.Command, names []string, list func() ([]string, error)) error {
	var errs mistakes
	errs = append(errs, positive("--interval", f.interval))
	if !slices.Contains(top.Orders(), top.Order(f.order)) {
		errs.add("--sort %q: must be one of %s", f.order, orderNames())
	}
	if f.count < 0 {
		errs.add("--count %d: must be 0 or more", f.count)
	}
	if (f.once || f.asJSON) && f.count > 1 {
		errs.add("--count %d: --once and --json print one table; see `%s --help`", f.count, cmd.CommandPath())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if f.once || f.asJSON {
		f.count = 1
	}
	collect := func(ctx context.Context) (top.Sample, error) { return sample(ctx, names, list) }
	view := top.View{Order: top.Order(f.order), Totals: f.totals, JSON: f.asJSON}
	out := fileOf(cmd.OutOrStdout())
	if out == nil || f.count > 0 || !isTerminal(out) || !isTerminal(os.Stdin) {
		return top.Plain(cmd.Context(), cmd.OutOrStdout(), collect, view, f.interval, f.count)
	}
	return top.Screen(cmd.Context(), os.Stdin, out, collect, view, f.interval)
}

// sample queries the processes in names, an agent's cards if it is one of them, or all that list
// finds. The error is about those that do not answer. The sample has the others.
func sample(ctx context.Context, names []string, list func() ([]string, error)) (top.Sample, error) {
	sockets, err := socketsOr(ctx, names, list)
	errs := []error{err}
	var all []render.Status
	for i := 0; i < len(sockets); i++ { // there may be more
		s, err := readStatus(ctx, sockets[i])
		errs = append(errs, err)
		if err != nil {
			continue
		}
		all = append(all, s)
		if len(names) == 0 || s.Agent == nil {
			continue
		}
		for _, c := range s.Agent.Cards {
			its, err := socketOf(ctx, hostRole, c.Spec.Name, list)
			if err == nil && !slices.Contains(sockets, its) {
				sockets = append(sockets, its)
			}
			errs = append(errs, err)
		}
	}
	return top.NewSample(all, time.Now()), errors.Join(errs...)
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/render"
	"github.com/splitnic/splitnic/internal/cpus"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
)

type changeFlags struct {
	assign, cpus, budget, spin, priority []string
}

func (f *changeFlags) add(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.assign, "assign", nil, "QUEUE=HANDLER: assign a queue, from 1, to another handler, or to none")
	flags.StringArrayVar(&f.cpus, "cpus", nil, "HANDLER=LIST: processors of a handler, such as 1=0-3,8,2=any")
	flags.StringArrayVar(&f.budget, "budget", nil, "HANDLER=N: completions that it handles in a row")
	flags.StringArrayVar(&f.spin, "spin", nil, "HANDLER=DURATION: how long it polls before it sleeps, or auto[:LONGEST]")
	flags.StringArrayVar(&f.priority, "priority", nil, "HANDLER=PRIORITY: -20 (first) to 19 (last), latency or normal")
}

func (f *changeFlags) config() (cq.HandlerChange, error) {
	var ch cq.HandlerChange
	patch := func(number int) *cq.HandlerPatch {
		for i := range ch.Handlers {
			if ch.Handlers[i].Number == number {
				return &ch.Handlers[i]
			}
		}
		ch.Handlers = append(ch.Handlers, cq.HandlerPatch{Number: number})
		return &ch.Handlers[len(ch.Handlers)-1]
	}
	err := errors.Join(
		eachNumber("assign", f.assign, func(queue int, value string) error {
			handler, err := strconv.Atoi(value)
			switch {
			case value == "none":
				handler = cq.Unassigned
			case err != nil:
				return fmt.Errorf("%q is no handler; give its number, or none", value)
			}
			if ch.Assign == nil {
				ch.Assign = map[int]int{}
			}
			ch.Assign[queue] = handler
			return nil
		}),
		eachNumber("cpus", f.cpus, func(number int, value string) error {
			if value == "any" {
				value = ""
			}
			list, err := cpus.Parse(value)
			patch(number).CPUs = &list
			return err
		}),
		eachNumber("budget", f.budget, func(number int, value string) error {
			n, err := strconv.Atoi(value)
			if err != nil {
				return errors.New("must be a number of completions")
			}
			patch(number).Budget = &n
			return nil
		}),
		eachNumber("spin", f.spin, func(number int, value string) error {
			spin, adaptive, err := parseSpin(value)
			p := patch(number)
			p.Spin, p.Adaptive = &spin, &adaptive
			return err
		}),
		eachNumber("priority", f.priority, func(number int, value string) error {
			n, err := parsePriority(value)
			patch(number).Priority = &n
			return err
		}))
	return ch, err
}

// eachNumber calls set for each NUMBER=VALUE of a flag, which may be given several times.
func eachNumber(flag string, texts []string, set func(number int, value string) error) error {
	text := strings.Join(texts, ",")
	values, err := parseNumbered(text)
	if err == nil && values == nil && text != "" {
		err = fmt.Errorf("must be NUMBER=VALUE, such as --%s 1=…", flag)
	}
	for _, v := range values {
		if err == nil {
			err = set(v.number, v.value)
		}
	}
	if err != nil {
		return exit.Usagef("--%s %s: %w", flag, text, err)
	}
	return nil
}

func emptyChange(ch *cq.HandlerChange) bool { return len(ch.Assign)+len(ch.Handlers) == 0 }

const handlersLong = `A completion-queue handler has processors, a priority, a budget and a polling time, which
apply to all queues that are assigned to it. Handler 0 is for the control channel. Changes
take effect at once and in later sessions. Exception: a queue that gets another handler
keeps its completion vector until the next session.

`

func hostHandlersCommand() *cobra.Command {
	c := handlersCommand(hostRole, &cobra.Command{
		Use:   "handlers [NAME]",
		Short: "Show and change the completion-queue handlers of a host on this machine",
		Long: "Show, and with flags change, the completion-queue handlers of a host on this machine.\n\n" +
			handlersLong + whichHost,
		Example: `  splitnic host handlers sn0
  splitnic host handlers --assign 2=1 --cpus 1=0-3 --priority 1=latency`,
		Args: atMost(1),
	})
	return completing(c, hostRole)
}

func iounitHandlersCommand() *cobra.Command {
	return handlersCommand(unitRole, &cobra.Command{
		Use:   "handlers HOST [PORT]",
		Short: "Show and change the completion-queue handlers for a host of an I/O unit on this machine",
		Long: "Show, and with flags change, the completion-queue handlers that an I/O unit on this machine has for a " +
			"host. HOST is its name, or the fingerprint of its key.\n\n" + handlersLong + whichUnit,
		Example:           `  splitnic iounit handlers alpha.sn0 --cpus 1=2,2=3`,
		Args:              hostOfUnit,
		ValidArgsFunction: completeHosts(statussock.List),
	})
}

// handlersCommand completes c, the command "handlers" of an endpoint with a role. For an I/O unit
// the first argument is the host whose handlers it shows and changes.
func handlersCommand(of role, c *cobra.Command) *cobra.Command {
	var f changeFlags
	var asJSON bool
	c.RunE = func(cmd *cobra.Command, args []string) error {
		name := ""
		if of == unitRole {
			name, args = args[0], args[1:]
		}
		ch, err := f.config()
		if err != nil {
			return err
		}
		path, err := oneSocket(cmd.Context(), of, args, statussock.List)
		if err != nil {
			return err
		}
		return tellHandlers(cmd, path, daemon.HandlersRequest{Host: name, Change: ch}, asJSON)
	}
	f.add(c.Flags())
	boolVar(c.Flags(), &asJSON, "json", false, "print JSON")
	return c
}

// followTime is how long to wait until the workers have applied the changes. A worker that waits
// for its netdevice applies them after this wait.
const followTime = time.Second

// tellHandlers makes a daemon change its handlers, and then shows them.
func tellHandlers(cmd *cobra.Command, path string, request daemon.HandlersRequest, asJSON bool) error {
	ctx := cmd.Context()
	if !emptyChange(&request.Change) {
		if _, err := statussock.DoWith(ctx, path, daemon.CommandHandlers, request); err != nil {
			return explainSocket(named(err, daemon.CommandHandlers, shownName(path)))
		}
	}
	view, err := readHandlers(ctx, path, request.Host)
	for end := time.Now().Add(followTime); err == nil && view.Pending() && time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
		view, err = readHandlers(ctx, path, request.Host)
	}
	if err != nil {
		return explainSocket(err)
	}
	return show(cmd.OutOrStdout(), asJSON, view, func(w io.Writer) error {
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		view.Print(tw, "")
		return tw.Flush()
	})
}

// readHandlers reads the handlers from a daemon's status. name is the name of a host if the
// daemon is an I/O unit, and otherwise empty.
func readHandlers(ctx context.Context, path, name string) (*render.Handlers, error) {
	is, err := readStatus(ctx, path)
	switch {
	case err != nil:
		return nil, err
	case name == "" && is.Host == nil:
		return nil, exit.Usagef("%s: no host is there: it is an %s", path, is.Role())
	case name == "":
		s := is.Host
		return render.NewHandlers(s.CompVectors, s.Interrupts, s.Handling, s.Traffic), nil
	case is.Unit == nil:
		return nil, exit.Usagef("%s: no I/O unit is there: it is a %s", path, is.Role())
	}
	s := is.Unit
	var names []string
	for i := range s.Hosts {
		names = append(names, s.Hosts[i].Name)
		if h := &s.Hosts[i]; (h.Name == name || h.Fingerprint == name) && h.Traffic != nil {
			return render.NewHandlers(s.CompVectors, s.Interrupts, messaging.HandlingOf(h.Traffic), h.Traffic), nil
		}
	}
	return nil, exit.With(exit.Missing, fmt.Errorf("%s: host %s is not connected; there are: %s", path, name,
		cmp.Or(strings.Join(names, ", "), "none")))
}

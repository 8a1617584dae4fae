package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/splitnic/splitnic/internal/cpus"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

const commandHandlers = "handlers"

// handlersOrder is the argument of the command.
type handlersOrder struct {
	Host   string                  `json:"host,omitempty"` // at an I/O unit
	Change messaging.HandlerChange `json:"change"`
}

// handlersTaker is the command in a daemon, whose workers may need more Ps then.
func handlersTaker(change func(handlersOrder) error, procs int) statussock.Command {
	return statussock.Command{Name: commandHandlers, RunWith: func(_ context.Context, argument json.RawMessage) (any, error) {
		var order handlersOrder
		if err := json.Unmarshal(argument, &order); err != nil {
			return nil, fmt.Errorf("what is to change: %w", err)
		}
		for _, h := range order.Change.Handlers {
			if h.CPUs != nil || h.Priority != nil {
				moreProcs(procs)
			}
		}
		return struct{}{}, change(order)
	}}
}

// changeFlags are the flags that say what to change.
type changeFlags struct {
	assign, cpus, budget, spin, priority []string
}

func (f *changeFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringArrayVar(&f.assign, "assign", nil, "QUEUE=HANDLER: assign a queue, from 1, to another handler")
	flags.StringArrayVar(&f.cpus, "cpus", nil, "HANDLER=LIST: processors of a handler, such as 1=0-3,8, or any")
	flags.StringArrayVar(&f.budget, "budget", nil, "HANDLER=N: completions that it handles in a row")
	flags.StringArrayVar(&f.spin, "spin", nil, "HANDLER=DURATION: how long it polls before it sleeps")
	flags.StringArrayVar(&f.priority, "priority", nil, "HANDLER=PRIORITY: -20 (first) to 19 (last), latency or normal")
}

// equation reads NUMBER=VALUE.
func equation(flag, text string) (int, string, error) {
	left, right, ok := strings.Cut(text, "=")
	n, err := strconv.Atoi(left)
	if !ok || err != nil {
		return 0, "", usageError{fmt.Errorf("--%s %q: must be NUMBER=VALUE, such as --%s 1=…", flag, text, flag)}
	}
	return n, right, nil
}

// change is what the flags say.
func (f *changeFlags) change() (messaging.HandlerChange, error) {
	var ch messaging.HandlerChange
	patches := map[int]int{} // where in ch.Handlers
	each := func(flag string, texts []string, set func(p *messaging.HandlerPatch, value string) error) error {
		for _, text := range texts {
			n, value, err := equation(flag, text)
			if err != nil {
				return err
			}
			i, ok := patches[n]
			if !ok {
				i = len(ch.Handlers)
				patches[n] = i
				ch.Handlers = append(ch.Handlers, messaging.HandlerPatch{Number: n})
			}
			if err := set(&ch.Handlers[i], value); err != nil {
				return usageError{fmt.Errorf("--%s %s: %w", flag, text, err)}
			}
		}
		return nil
	}
	for _, text := range f.assign {
		n, value, err := equation("assign", text)
		if err != nil {
			return ch, err
		}
		handler, err := strconv.Atoi(value)
		if err != nil {
			return ch, usageError{fmt.Errorf("--assign %s: %q is no handler", text, value)}
		}
		if ch.Assign == nil {
			ch.Assign = map[int]int{}
		}
		ch.Assign[n] = handler
	}
	return ch, errors.Join(
		each("cpus", f.cpus, func(p *messaging.HandlerPatch, value string) error {
			if value == "any" {
				value = ""
			}
			list, err := cpus.Parse(value)
			p.CPUs = &list
			return err
		}),
		each("budget", f.budget, func(p *messaging.HandlerPatch, value string) error {
			n, err := strconv.Atoi(value)
			p.Budget = &n
			if err != nil {
				return errors.New("must be a number of completions")
			}
			return nil
		}),
		each("spin", f.spin, func(p *messaging.HandlerPatch, value string) error {
			d, err := time.ParseDuration(value)
			p.Spin = &d
			return err
		}),
		each("priority", f.priority, func(p *messaging.HandlerPatch, value string) error {
			n, err := parsePriority(value)
			p.Priority = &n
			return err
		}))
}

// emptyChange reports whether nothing is to change.
func emptyChange(ch *messaging.HandlerChange) bool { return len(ch.Assign)+len(ch.Handlers) == 0 }

const handlersLong = `
A completion-queue handler has processors, a priority, a budget and a time to poll; all
queues that are assigned to it have them. Handler 0 is the control channel's. What is
changed takes effect at once and in further sessions, but for the completion vector of
a queue that gets another handler, which it keeps until the next session.`

func hostHandlersCommand() *cobra.Command {
	var f changeFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "handlers [NAME]",
		Short: "Show and change the completion-queue handlers of a host on this machine",
		Long:  "Show, and with flags change, the completion-queue handlers of a host on this machine.\n" + handlersLong + "\n\n" + whichHost,
		Example: `  splitnic host handlers sn0
  splitnic host handlers --assign 2=1 --cpus 1=0-3 --priority 1=latency`,
		Args: maximumArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ch, err := f.change()
			if err != nil {
				return err
			}
			path, err := daemonSocket("host", args, statussock.List)
			if err != nil {
				return err
			}
			return tellHandlers(cmd, path, handlersOrder{Change: ch}, asJSON)
		},
	}
	f.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func iounitHandlersCommand() *cobra.Command {
	var f changeFlags
	var asJSON bool
	var name string
	c := &cobra.Command{
		Use:   "handlers --host NAME [PORT]",
		Short: "Show and change the completion-queue handlers for a host of an I/O unit on this machine",
		Long: "Show, and with flags change, the completion-queue handlers that an I/O unit on this\nmachine has for a host.\n" + handlersLong + `

PORT is the one that the I/O unit listens on, or the path of its status socket. It can
be left out where there is one I/O unit only.`,
		Example: `  splitnic iounit handlers --host alpha.sn0 --cpus 1=2,2=3`,
		Args:    maximumArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if name == "" {
				return usageError{errors.New("--host is missing: the name of a host, which `splitnic status` shows")}
			}
			ch, err := f.change()
			if err != nil {
				return err
			}
			path, err := daemonSocket("iounit", args, statussock.List)
			if err != nil {
				return err
			}
			return tellHandlers(cmd, path, handlersOrder{Host: name, Change: ch}, asJSON)
		},
	}
	f.add(c)
	c.Flags().StringVar(&name, "host", "", "name of the host, or the fingerprint of its key")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// maximumArgs is cobra's, whose error is a mistake of the user's.
func maximumArgs(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := cobra.MaximumNArgs(n)(c, args); err != nil {
			return usageError{fmt.Errorf("%w; see `%s --help`", err, c.CommandPath())}
		}
		return nil
	}
}

// followTime is how long to wait for the workers to follow: one that waits for
// its netdevice follows when that is over.
const followTime = time.Second

// handlersView is what is shown of handlers.
type handlersView struct {
	CompVectors int                       `json:"comp_vectors"`
	Handling    messaging.Handling        `json:"handling"`           // in force, and for the next session
	Handlers    []messaging.HandlerStats  `json:"handlers,omitempty"` // of the present session
	Channels    []messaging.ChannelVector `json:"channels,omitempty"` // of the present session
}

// tellHandlers has a daemon change its handlers and shows what they are then.
func tellHandlers(cmd *cobra.Command, path string, order handlersOrder, asJSON bool) error {
	ctx := cmd.Context()
	if !emptyChange(&order.Change) {
		if _, err := statussock.DoWith(ctx, path, commandHandlers, order); err != nil {
			return explainSocket(err)
		}
	}
	view, err := readHandlers(ctx, path, order.Host)
	for end := time.Now().Add(followTime); err == nil && view.pending() && time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
		view, err = readHandlers(ctx, path, order.Host)
	}
	if err != nil {
		return explainSocket(err)
	}
	if asJSON {
		enc := json.NewEncoder(cmd.OutOrStdout())
		enc.SetIndent("", "  ")
		return enc.Encode(view)
	}
	tw := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	view.print(tw, "")
	return tw.Flush()
}

// explainSocket adds the cure to an error about a daemon's socket.
func explainSocket(err error) error {
	switch {
	case errors.Is(err, statussock.ErrUnknown):
		return usageError{fmt.Errorf("%w; is it a host, or an I/O unit, that is meant?", err)}
	case errors.Is(err, statussock.ErrNobody):
		return fmt.Errorf("%w (`splitnic status` lists who is there)", err)
	}
	return err
}

// readHandlers reads the handlers from a daemon's status; name is a host's, at an
// I/O unit.
func readHandlers(ctx context.Context, path, name string) (*handlersView, error) {
	raw, err := statussock.Read(ctx, path)
	if err != nil {
		return nil, err
	}
	if name == "" {
		var s host.Status
		if err := json.Unmarshal(raw, &s); err != nil || s.Role != "host" {
			return nil, usageError{fmt.Errorf("%s: no host is there: %w", path, errors.Join(err, errors.New("it is an "+s.Role)))}
		}
		return newHandlersView(s.CompVectors, s.Handling, s.Traffic), nil
	}
	var s iounit.Status
	if err := json.Unmarshal(raw, &s); err != nil || s.Role != "iounit" {
		return nil, usageError{fmt.Errorf("%s: no I/O unit is there: %w", path, errors.Join(err, errors.New("it is a "+s.Role)))}
	}
	for i := range s.Hosts {
		if h := &s.Hosts[i]; (h.Name == name || h.Fingerprint == name) && h.Traffic != nil {
			return newHandlersView(s.CompVectors, messaging.HandlingOf(h.Traffic), h.Traffic), nil
		}
	}
	return nil, exitError{code: exitMissing, err: fmt.Errorf("%s: host %s is not connected", path, name)}
}

func newHandlersView(vectors int, g messaging.Handling, s *messaging.Stats) *handlersView {
	v := &handlersView{CompVectors: vectors, Handling: g}
	if s != nil {
		v.Handlers, v.Channels = s.Handlers, s.Vectors()
	}
	return v
}

// pending reports whether a worker has still to follow.
func (v *handlersView) pending() bool {
	for _, h := range v.Handlers {
		for _, w := range h.Workers {
			if w.Pending {
				return true
			}
		}
	}
	return false
}

// print prints the handlers for people.
func (v *handlersView) print(w io.Writer, indent string) {
	fmt.Fprintf(w, "%scompletion vectors\t%d, of the device\n", indent, v.CompVectors)
	if v.Handlers == nil {
		for _, h := range v.Handling.Handlers {
			fmt.Fprintf(w, "%shandler %d\t%s\n", indent, h.Number, handlerText(&h))
		}
		return
	}
	for i := range v.Handlers {
		h := &v.Handlers[i]
		fmt.Fprintf(w, "%shandler %d\t%s, completion vector %d: %s\n", indent, h.Number, channelsText(h.Channels), h.Vector, handlerText(&h.Handler))
		fmt.Fprintf(w, "%s\t%d completions, %d wake-ups, budget exhausted %d times\n", indent, h.Completions, h.Wakeups, h.BudgetExhausted)
		for _, x := range h.Workers {
			if text := workerText(&x); text != "" {
				fmt.Fprintf(w, "%s\t%s of %s: %s\n", indent, x.Role, channelsText([]int{x.Channel}), text)
			}
		}
	}
	for _, c := range v.Channels {
		if c.Vector != c.HandlerVector {
			fmt.Fprintf(w, "%squeue %d\tcompletion vector %d, and %d from the next session on\n", indent, c.Channel, c.Vector, c.HandlerVector)
		}
	}
}

func handlerText(h *messaging.Handler) string {
	where := "any processor"
	if len(h.CPUs) > 0 {
		where = "processors " + h.CPUs.String()
	}
	return fmt.Sprintf("%s, priority %d, budget %d, polls for %v", where, h.Priority, h.Budget, h.Spin)
}

// channelsText names channels, such as queues 1, 3.
func channelsText(channels []int) string {
	switch {
	case len(channels) == 0:
		return "no queue"
	case channels[0] == 0:
		return "control channel"
	case len(channels) == 1:
		return fmt.Sprintf("queue %d", channels[0])
	}
	var names []string
	for _, c := range channels {
		names = append(names, strconv.Itoa(c))
	}
	return "queues " + strings.Join(names, ", ")
}

// workerText says where a worker is, if that is not anywhere.
func workerText(x *messaging.WorkerStats) string {
	var text []string
	if x.Thread != 0 {
		text = append(text, fmt.Sprintf("thread %d on %v, priority %d", x.Thread, x.CPUs, x.Priority))
	}
	if x.Pending {
		text = append(text, "has not followed yet")
	}
	if x.Error != "" {
		text = append(text, "refused: "+x.Error)
	}
	return strings.Join(text, "; ")
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host"
)

// What a host does when it is told to through its status socket.
const (
	commandStats      = "stats"
	commandClearStats = "clear-stats"
	commandReset      = "reset"
	commandFailover   = "failover"
)

func hostCommands(h *host.Host, queues int) []statussock.Command {
	stats := func(clear bool) func(context.Context) (any, error) {
		return func(ctx context.Context) (any, error) { return h.Statistics(ctx, clear) }
	}
	return []statussock.Command{
		{Name: commandStats, Run: stats(false)},
		{Name: commandClearStats, Run: stats(true)},
		handlersTaker(func(o handlersOrder) error { return h.ChangeHandlers(o.Change) }, boundProcs(queues, 1)),
		{Name: commandFailover, RunWith: func(ctx context.Context, argument json.RawMessage) (any, error) {
			var addr string
			if err := json.Unmarshal(argument, &addr); err != nil {
				return nil, fmt.Errorf("which I/O unit: %w", err)
			}
			return h.Failover(ctx, addr)
		}},
		{Name: commandReset, Run: func(ctx context.Context) (any, error) { return struct{}{}, h.Reset(ctx) }},
	}
}

// whichNames is about the names that socketPath knows.
const whichNames = `NAME
is that of a host's netdevice, such as sn0, that of a socket there, such as iounit-7580,
or a path.`

const whichHost = `NAME is the name that the netdevice was made with, or the path of the host's status
socket. It can be left out where there is one host only.`

func statsCommand() *cobra.Command {
	var clear, asJSON bool
	c := &cobra.Command{
		Use:   "stats [NAME]",
		Short: "Show the I/O unit's counters of a host on this machine",
		Long: `Show the I/O unit's counters of a host on this machine: what crossed the network card
for it, and what was dropped there, since the session began or they were cleared.

` + whichHost,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			what := commandStats
			if clear {
				what = commandClearStats
			}
			raw, err := tellHost(cmd.Context(), args, what)
			if err != nil {
				return err
			}
			var s protocol.Statistics
			if err := json.Unmarshal(raw, &s); err != nil {
				return fmt.Errorf("stats: %w", err)
			}
			if asJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(s)
			}
			return printStatistics(cmd.OutOrStdout(), &s)
		},
	}
	c.Flags().BoolVar(&clear, "clear", false, "set them to zero in the same moment")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func resetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "reset [NAME]",
		Short: "Take back what was set on a host's netdevice since its session began",
		Long: `Take back what was set on a host's netdevice since its session began: the MAC address,
the MTU, and its own promiscuous and allmulticast flags. What programs and devices
stacked on it need stays.

` + whichHost,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := tellHost(cmd.Context(), args, commandReset)
			return err
		},
	}
}

// failoverCommand is `splitnic host failover`.
func failoverCommand() *cobra.Command {
	var name string
	var asJSON bool
	c := &cobra.Command{
		Use:   "failover [ADDRESS]",
		Short: "Have a host on this machine go over to another I/O unit",
		Long: `Have a host on this machine go over to the I/O unit at ADDRESS, which is one of its
--iounit, or without ADDRESS to the next one of these. The session with the new one is
made first, so that the netdevice keeps its carrier and no frame is lost; with an I/O
unit too old for that the carrier is gone for as long as it takes. If the new one
cannot be had, nothing changes.

It prints the addresses, how long it took in all, and for how long no frame could move.`,
		Example: `  splitnic host failover
  splitnic host failover 10.0.0.2 --name sn0`,
		Args: maximumArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var of []string
			if name != "" {
				of = []string{name}
			}
			addr := ""
			if len(args) == 1 {
				addr = args[0]
			}
			raw, err := tellHostWith(cmd.Context(), of, commandFailover, addr)
			if err != nil {
				return err
			}
			var f host.Failover
			if err := json.Unmarshal(raw, &f); err != nil {
				return fmt.Errorf("failover: %w", err)
			}
			if asJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(f)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), failoverText(&f))
			return err
		},
	}
	c.Flags().StringVar(&name, "name", "", "name that the netdevice was made with, or path of the host's status socket (default: the only host)")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// failoverText is a fail-over for people.
func failoverText(f *host.Failover) string {
	return fmt.Sprintf("%s → %s (%s): took %v, no frames for %v; %d frames carried over, %d uncertain, %d lost",
		f.From, f.To, f.Reason, f.Took.Round(100*time.Microsecond), f.Gap.Round(100*time.Microsecond), f.Carried, f.Uncertain, f.Lost)
}

// tellHost has a host on this machine carry out a command.
func tellHost(ctx context.Context, args []string, command string) (json.RawMessage, error) {
	return tellHostWith(ctx, args, command, nil)
}

// tellHostWith is tellHost with an argument for the command.
func tellHostWith(ctx context.Context, args []string, command string, argument any) (json.RawMessage, error) {
	path, err := daemonSocket("host", args, statussock.List)
	if err != nil {
		return nil, err
	}
	raw, err := statussock.DoWith(ctx, path, command, argument)
	switch {
	case errors.Is(err, statussock.ErrUnknown):
		err = usageError{fmt.Errorf("%w; it is for hosts", err)}
	case errors.Is(err, statussock.ErrNobody):
		err = fmt.Errorf("%w; name the host's netdevice as its --name does, or the path of its --status-socket (`splitnic status` lists who is there)", err)
	}
	return raw, err
}

// daemonSocket finds the status socket of the host, or iounit, that is meant.
func daemonSocket(role string, args []string, list func() ([]string, error)) (string, error) {
	prefix := role + "-"
	if len(args) == 1 {
		if strings.ContainsRune(args[0], '/') {
			return args[0], nil
		}
		return statussock.Path(prefix + args[0]), nil
	}
	all, err := list()
	if err != nil {
		return "", err
	}
	var hosts, names []string
	for _, path := range all {
		if name, ok := strings.CutPrefix(filepath.Base(path), prefix); ok {
			hosts = append(hosts, path)
			names = append(names, strings.TrimSuffix(name, filepath.Ext(name)))
		}
	}
	switch len(hosts) {
	case 0:
		return "", exitError{code: exitMissing, err: fmt.Errorf("no %s runs on this machine, or it has its socket elsewhere: name the socket", role)}
	case 1:
		return hosts[0], nil
	default:
		return "", usageError{fmt.Errorf("which %s? There are: %s", role, strings.Join(names, ", "))}
	}
}

func printStatistics(w io.Writer, s *protocol.Statistics) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "from the LAN\t%d frames, %d bytes\n", s.RxFrames, s.RxBytes)
	fmt.Fprintf(tw, "  dropped\t%d without room, %d too long, %d invalid, %d not wanted\n", s.RxDropped, s.RxTooLong, s.RxInvalid, s.RxFiltered)
	fmt.Fprintf(tw, "to the LAN\t%d frames, %d bytes\n", s.TxFrames, s.TxBytes)
	fmt.Fprintf(tw, "  dropped\t%d without room, %d with another's source address (`macs`, `ips` in the I/O unit's policy), %d of a VLAN that is not allowed (`vlans`, `nested-tags`)\n", s.TxDropped, s.TxSource, s.TxVLAN)
	return tw.Flush()
}

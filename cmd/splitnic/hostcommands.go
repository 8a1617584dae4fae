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
)

func hostCommands(h *host.Host, queues int) []statussock.Command {
	stats := func(clear bool) func(context.Context) (any, error) {
		return func(ctx context.Context) (any, error) { return h.Statistics(ctx, clear) }
	}
	return []statussock.Command{
		{Name: commandStats, Run: stats(false)},
		{Name: commandClearStats, Run: stats(true)},
		handlersTaker(func(o handlersOrder) error { return h.ChangeHandlers(o.Change) }, boundProcs(queues, 1)),
		{Name: commandReset, Run: func(ctx context.Context) (any, error) { return struct{}{}, h.Reset(ctx) }},
	}
}

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

// tellHost has a host on this machine carry out a command.
func tellHost(ctx context.Context, args []string, command string) (json.RawMessage, error) {
	path, err := daemonSocket("host", args, statussock.List)
	if err != nil {
		return nil, err
	}
	raw, err := statussock.Do(ctx, path, command)
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
	fmt.Fprintf(tw, "  dropped\t%d without room, %d with another's source address, %d of a VLAN that is not allowed\n", s.TxDropped, s.TxSource, s.TxVLAN)
	return tw.Flush()
}

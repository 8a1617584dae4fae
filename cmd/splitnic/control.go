package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/render"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
)

func statsCommand() *cobra.Command {
	var clear, asJSON bool
	c := &cobra.Command{
		Use:   "stats [NAME]",
		Short: "Show the I/O unit's counters of a host on this machine",
		Long: `Show the I/O unit's counters of a host on this machine: the frames that crossed the network
card for it, and those dropped there, since the session began or the counters were cleared.

` + whichHost,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			what := daemon.CommandStats
			if clear {
				what = daemon.CommandClearStats
			}
			_, s, err := tell[protocol.Statistics](cmd.Context(), hostRole, args, what, nil)
			if err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), asJSON, s, func(w io.Writer) error { return render.Statistics(w, &s) })
		},
	}
	boolVar(c.Flags(), &clear, "clear", false, "reset the counters to zero at the same time")
	boolVar(c.Flags(), &asJSON, "json", false, "print JSON")
	return c
}

func resetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "reset [NAME]",
		Short: "Undo settings of a host's netdevice since its session began",
		Long: `Undo settings of a host's netdevice since its session began: the MAC address,
the MTU, and its own promiscuous and allmulticast flags. Settings that programs or stacked
devices need stay.

` + whichHost,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, _, err := tell[any](cmd.Context(), hostRole, args, daemon.CommandReset, nil)
			return err
		},
	}
}

func failoverCommand() *cobra.Command {
	var to string
	var asJSON bool
	c := &cobra.Command{
		Use:   "failover [NAME] [--to ADDRESS]",
		Short: "Switch a host on this machine to another I/O unit",
		Long: `Switch a host on this machine to the I/O unit at ADDRESS, which is one of its
--iounit, or without --to to the next one of these. The session with the new I/O unit
is made first, so the netdevice keeps its carrier and no frame is lost. An old version of
the I/O unit may not support that; then the carrier is off during the switch. If the new
session fails, nothing changes.

` + whichHost + `

It prints the addresses, the total time, and the time in which no frame could move.`,
		Example: `  splitnic host failover
  splitnic host failover sn0 --to 10.0.0.2`,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, f, err := tell[uplink.Failover](cmd.Context(), hostRole, args, daemon.CommandFailover, to)
			if err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), asJSON, f, line(render.Failover(&f)))
		},
	}
	c.Flags().StringVar(&to, "to", "", "address of the I/O unit (default: the next one)")
	boolVar(c.Flags(), &asJSON, "json", false, "print JSON")
	return completing(c, hostRole)
}

func reloadCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "reload [NAME…]",
		Short: "Reload keys, trust and policy of the hosts and I/O units on this machine",
		Long: `Reload keys, trust and policy of the hosts and I/O units on this machine: the files of
--key, --cert, --ca, --trust-file, --revoked and --policy, and these flags, --trust and
--log-level where they are in the file of --config. Flags on the command line stay. If one of the
files has a mistake, nothing changes.

Sessions continue, except those whose peer is no longer trusted or uses something that the
policy no longer permits. SIGHUP does the same.

Without arguments it reloads every process with its socket in ` + statussock.Dir + `. ` + whichNames,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, names []string) error {
			sockets, err := socketsOr(cmd.Context(), names, statussock.List)
			if err != nil {
				return err
			}
			return reloadEach(cmd.Context(), cmd.OutOrStdout(), sockets, asJSON)
		},
	}
	boolVar(c.Flags(), &asJSON, "json", false, "print JSON")
	return c
}

// reloaded is what `splitnic reload --json` prints about a process.
type reloaded struct {
	Name  string `json:"name"`
	Error string `json:"error,omitempty"`
	daemon.Reloaded
}

// reloadEach reloads the processes and cards with these sockets. An agent also reloads its cards.
// Their sockets are skipped if they come after the agent's.
func reloadEach(ctx context.Context, w io.Writer, sockets []string, asJSON bool) error {
	var errs []error
	var cards []string
	all := []reloaded{}
	for _, path := range sockets {
		if slices.Contains(cards, path) {
			continue
		}
		done := reloaded{Name: ownName(path)}
		raw, err := statussock.Do(ctx, path, daemon.CommandReload)
		if err == nil {
			err = json.Unmarshal(raw, &done.Reloaded)
		}
		if err != nil {
			err = named(err, daemon.CommandReload, shownName(path))
			done.Error = err.Error()
			errs = append(errs, err)
		} else if !asJSON {
			fmt.Fprint(w, reloadedLine(&done))
		}
		cards = append(cards, done.Cards...)
		all = append(all, done)
	}
	if asJSON {
		errs = append(errs, printJSON(w, all))
	}
	return errors.Join(errs...)
}

func reloadedLine(done *reloaded) string {
	key := ""
	if done.Fingerprint != "" { // empty for an agent, whose cards can have different keys
		key = ", key " + done.Fingerprint
	}
	line := fmt.Sprintf("%s: reloaded%s, %s ended\n", done.Name, key, render.Counted(done.Ended, "session"))
	if len(done.Late) > 0 {
		line += fmt.Sprintf("%s: changed in the configuration file, and not in force before a restart: %s\n", done.Name,
			strings.Join(done.Late, ", "))
	}
	return line
}

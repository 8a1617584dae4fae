package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/render"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/splitdrv/iounit"
)

const whichUnit = `PORT is the port on which the I/O unit listens, its name, or the path of its status socket. It
can be omitted if there is only one I/O unit.`

// drainTimeout is the time-out of --wait without --timeout.
const drainTimeout = time.Minute

type drainFlags struct {
	wait, asJSON bool
	timeout      time.Duration
}

func drainCommand() *cobra.Command {
	var f drainFlags
	c := &cobra.Command{
		Use:   "drain [PORT] [--wait]",
		Short: "Empty an I/O unit on this machine for maintenance",
		Long: `Drain an I/O unit on this machine: it refuses new hosts, and asks its hosts to move to another
I/O unit, some at a time. Each moves by a planned switch, in which its netdevice keeps its
carrier and no connection breaks. A host without another I/O unit, or whose other I/O units
refuse it, stays, tries again, and is listed with the reason.

The I/O unit drains until ` + "`splitnic iounit undrain`" + `, or the end of its process: after a
restart it accepts hosts. The command can be repeated while it drains, to wait for the end.

With --wait the exit status is 0 when no host is left, and ` + fmt.Sprint(exit.TimedOut) + ` after the time-out,
which is ` + drainTimeout.String() + ` without --timeout. The I/O unit goes on with it then.

` + whichUnit,
		Example: `  splitnic iounit drain --wait --timeout 5m && systemctl restart splitnic-iounit
  splitnic iounit drain 7580`,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), args, cmd.Flags().Changed("timeout"))
		},
	}
	boolVar(c.Flags(), &f.wait, "wait", false, "wait until no host is left")
	c.Flags().DurationVar(&f.timeout, "timeout", drainTimeout, "time-out of --wait")
	boolVar(c.Flags(), &f.asJSON, "json", false, "print JSON")
	return c
}

func undrainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "undrain [PORT]",
		Short: "Let an I/O unit on this machine accept hosts again",
		Long: `Let an I/O unit on this machine accept hosts again. Hosts that it has asked to move and that
have not moved yet stay. The others return if they prefer it and have --fail-back.

` + whichUnit,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, _, err := tell[any](cmd.Context(), unitRole, args, daemon.CommandUndrain, nil)
			return err
		},
	}
}

func disconnectCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "disconnect HOST [PORT]",
		Short: "End the session of a host with an I/O unit on this machine",
		Long: `End the session of a host with an I/O unit on this machine, after all frames in flight have
arrived. HOST is its name or the fingerprint of its key, which ` + "`splitnic status`" + ` shows.

The host moves to its next I/O unit, without carrier in the meantime. It may come back; a host
with one I/O unit does so at once. An I/O unit that drains refuses it. To exclude the host,
remove its key from the trusted keys, and reload.

` + whichUnit,
		Example:           `  splitnic iounit disconnect alpha.sn0`,
		ValidArgsFunction: completeHosts(statussock.List),
		Args:              hostOfUnit,
		RunE: func(cmd *cobra.Command, args []string) error {
			_, _, err := tell[any](cmd.Context(), unitRole, args[1:], daemon.CommandDisconnect, args[0])
			return err
		},
	}
}

// hostOfUnit checks the arguments HOST and PORT of a command.
func hostOfUnit(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return exit.Usagef("HOST is missing: the name of a host, which `splitnic status` shows")
	}
	return atMost(2)(cmd, args)
}

// run drains the I/O unit in args. timed says whether the user has given a time-out.
func (f *drainFlags) run(ctx context.Context, w io.Writer, args []string, timed bool) error {
	if timed && !f.wait {
		return exit.Usagef("--timeout %v: is the time-out of --wait; add it, or omit --timeout", f.timeout)
	}
	if err := positive("--timeout", f.timeout); err != nil {
		return err
	}
	within := ctx
	if f.wait {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, f.timeout)
		defer cancel()
	}
	path, s, err := tell[iounit.DrainStatus](within, unitRole, args, daemon.CommandDrain,
		daemon.DrainRequest{Wait: f.wait})
	name := ownName(path)
	switch {
	case err != nil && ctx.Err() != nil:
		return errors.New("drain: interrupted; the I/O unit goes on with it")
	case err != nil && within.Err() != nil:
		return f.late(ctx, path, name)
	case err != nil:
		return err
	}
	return show(w, f.asJSON, s, func(w io.Writer) error { return render.Drain(w, name, &s) })
}

// late returns the error for the end of the time-out, with the hosts that are left.
func (f *drainFlags) late(ctx context.Context, path, name string) error {
	s, err := readStatus(ctx, path)
	switch {
	case err != nil:
		return fmt.Errorf("drain: %w", err)
	case s.Unit == nil || s.Unit.Drain == nil:
		return fmt.Errorf("drain: %s accepts hosts again", name)
	case len(s.Unit.Drain.Remaining) == 0: // the last host has left in the last moment
		return nil
	}
	return exit.With(exit.TimedOut, fmt.Errorf("drain: %s left on %s after %v: %s",
		render.Counted(len(s.Unit.Drain.Remaining), "host"), name, f.timeout,
		strings.Join(render.Remaining(s.Unit.Drain), "; ")))
}

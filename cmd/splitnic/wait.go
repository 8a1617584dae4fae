package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/render"
	"github.com/splitnic/splitnic/internal/statussock"
)

type waitFlags struct {
	daemon.Condition
	timeout time.Duration
	asJSON  bool
}

// waited is what `splitnic wait --json` prints.
type waited struct {
	Done    bool   `json:"done"`
	Missing string `json:"missing,omitempty"` // at the end of the time-out
}

func waitCommand() *cobra.Command {
	var f waitFlags
	c := &cobra.Command{
		Use:   "wait [NAME] [--connected] [--carrier]",
		Short: "Wait until a host on this machine has a session, or carrier",
		Long: `Wait until a host on this machine has a session with --connected, carrier with --carrier,
or both. Without these flags, wait until the process answers; it may also be an I/O unit, by
its port. The process need not be running yet; then a line says what is waited
for, and lists the running processes by all their names.

` + whichHost + `

The exit status is 0 when the condition holds, and ` + fmt.Sprint(exit.TimedOut) + ` after the time-out. Then a line
says what is missing. With --timeout 0 it checks once. It is meant for scripts, ExecStartPost=
of a service, and the probes of a container: wait NAME --timeout 0 checks whether the process is
alive, wait NAME --connected --timeout 0 whether it is ready.`,
		Example: `  splitnic wait sn0 --connected --carrier && dhclient sn0
  splitnic wait sn0 --connected --timeout 0
  splitnic wait 7580 --timeout 5s`,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := f.run(cmd.Context(), cmd.ErrOrStderr(), args, statussock.List)
			if status := exit.Status(err); f.asJSON && (status == 0 || status == exit.TimedOut) {
				done := waited{Done: err == nil}
				if err != nil {
					done.Missing = err.Error()
				}
				err = errors.Join(err, printJSON(cmd.OutOrStdout(), done))
			}
			return err
		},
	}
	boolVar(c.Flags(), &f.Connected, "connected", false, "wait until the host has a session with an I/O unit")
	boolVar(c.Flags(), &f.Carrier, "carrier", false, "wait until its netdevice has carrier")
	c.Flags().DurationVar(&f.timeout, "timeout", 30*time.Second, "time-out; 0: check once")
	boolVar(c.Flags(), &f.asJSON, "json", false, "print JSON")
	return c
}

// again is the pause before a process that did not run is queried again.
const again = 250 * time.Millisecond

// run waits for the process in args, or for the only host that list finds. If the process does
// not run yet, it writes to w what it waits for.
func (f *waitFlags) run(ctx context.Context, w io.Writer, args []string, list lister) error {
	if f.timeout < 0 {
		return exit.Usagef("--timeout %v: must be 0 or more", f.timeout)
	}
	if f.timeout == 0 {
		return f.look(ctx, args, list)
	}
	within, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	var sockets []string
	var path string
	var missing error
	for first := true; ; first = false {
		// Who was not among these sockets cannot come before one of them does.
		if now, err := list(); first || err != nil || !slices.Equal(now, sockets) {
			path, missing = awaited(within, args, list)
			sockets = now
		}
		err := missing
		if err == nil {
			err = f.ask(within, path)
		}
		if err == nil || errors.Is(err, statussock.ErrUnknown) || errors.Is(err, os.ErrPermission) ||
			exit.Status(err) == exit.Usage {
			return forHosts(err)
		}
		if first && exit.Status(err) == exit.Missing {
			fmt.Fprintf(w, "waiting for up to %v: %v\n", f.timeout, reason(err))
		}
		select {
		case <-within.Done():
		case <-time.After(again):
			continue
		}
		if ctx.Err() != nil {
			return errors.New("wait: interrupted")
		}
		// The condition may have become true in the last moment.
		return f.look(ctx, args, list)
	}
}

// awaited returns the socket of the process in args, or of the only host.
func awaited(ctx context.Context, args []string, list lister) (string, error) {
	if len(args) == 0 {
		return oneSocket(ctx, hostRole, nil, list)
	}
	return oneSocket(ctx, anyRole, args, list)
}

// reason returns the text of an error about a socket, without the command at the beginning.
func reason(err error) string {
	return strings.TrimPrefix(strings.TrimPrefix(err.Error(), "status: "), daemon.CommandWait+": ")
}

// forHosts explains an error about a command that an I/O unit does not have.
func forHosts(err error) error {
	if errors.Is(err, statussock.ErrUnknown) {
		return exit.Usagef("%w; --connected and --carrier are for hosts", err)
	}
	return err
}

// ask returns nil when the condition holds. It returns an error if the process does not run, or
// does not have the command.
func (f *waitFlags) ask(ctx context.Context, path string) error {
	if f.Condition == (daemon.Condition{}) {
		_, err := statussock.Read(ctx, path)
		return err
	}
	_, err := statussock.DoWith(ctx, path, daemon.CommandWait, f.Condition)
	return err
}

// look checks the condition once, and returns an error about what is missing.
func (f *waitFlags) look(ctx context.Context, args []string, list lister) error {
	path, err := awaited(ctx, args, list)
	var s render.Status
	if err == nil {
		s, err = readStatus(ctx, path)
	}
	switch {
	case exit.Status(err) == exit.Missing, errors.Is(err, statussock.ErrSilent):
		return f.missing("wait: " + reason(err))
	case err != nil:
		return err
	case f.Condition == (daemon.Condition{}):
		return nil
	case s.Host == nil:
		return forHosts(fmt.Errorf("wait: %s: %w", path, statussock.ErrUnknown))
	}
	why := f.Missing(&s.Host.Status)
	if why == "" {
		return nil
	}
	return f.missing(fmt.Sprintf("wait: %s %s", s.Host.Card, strings.ReplaceAll(why, "\n", "; ")))
}

// missing returns the error for a condition that does not hold at the end of the time-out.
func (f *waitFlags) missing(what string) error {
	if f.timeout > 0 {
		what += fmt.Sprintf(", after %v", f.timeout)
	}
	return exit.With(exit.TimedOut, errors.New(what))
}

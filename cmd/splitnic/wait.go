package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/render"
	"github.com/splitnic/splitnic/internal/statussock"
)

// waitFlags are the flags of `splitnic wait`.
type waitFlags struct {
	daemon.Condition
	timeout time.Duration
}

func waitCommand() *cobra.Command {
	var f waitFlags
	c := &cobra.Command{
		Use:   "wait [NAME] [--connected] [--carrier]",
		Short: "Wait until a host on this machine has a session, or carrier",
		Long: `Wait until a host on this machine has a session with --connected, carrier with --carrier,
or both. Without these flags, wait until the process answers; it may also be an I/O unit, by
its port. The process need not be running yet; then a line says what is waited
for, and lists the running processes.

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
			return f.run(cmd.Context(), cmd.ErrOrStderr(), args, statussock.List)
		},
	}
	boolVar(c.Flags(), &f.Connected, "connected", false, "wait until the host has a session with an I/O unit")
	boolVar(c.Flags(), &f.Carrier, "carrier", false, "wait until its netdevice has carrier")
	c.Flags().DurationVar(&f.timeout, "timeout", 30*time.Second, "time-out; 0: check once")
	return c
}

// again is the pause before a process that did not run is queried again.
const again = 250 * time.Millisecond

// run waits for the process in args, or for the only host that list finds. If the process does
// not run yet, it writes to w what it waits for.
func (f *waitFlags) run(ctx context.Context, w io.Writer, args []string, list func() ([]string, error)) error {
	if f.timeout < 0 {
		return exit.Usagef("--timeout %v: must be 0 or more", f.timeout)
	}
	if f.timeout == 0 {
		return f.look(ctx, args, list)
	}
	within, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	for first := true; ; first = false {
		path, err := awaited(args, list)
		if err == nil {
			err = f.ask(within, path)
		}
		if err == nil || errors.Is(err, statussock.ErrUnknown) || errors.Is(err, os.ErrPermission) ||
			exit.Status(err) == exit.Usage {
			return forHosts(err)
		}
		if first && exit.Status(err) == exit.Missing {
			fmt.Fprintf(w, "waiting for up to %v: %v%s\n", f.timeout, reason(err), others(within, list))
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

// awaited returns the socket of the process in args. The process may not run yet: then a number
// is the port of an I/O unit, and another name is that of a host's netdevice.
func awaited(args []string, list func() ([]string, error)) (string, error) {
	if len(args) == 0 {
		return daemonSocket("host", args, list)
	}
	if path, err := socketAmong(list, args[0]); err == nil {
		return path, nil
	}
	if _, err := strconv.ParseUint(args[0], 10, 16); err == nil {
		return socketPath("iounit", args[0]), nil
	}
	return socketPath("host", args[0]), nil
}

// others returns the names of the processes that run, for a user who has mistyped a name. It
// leaves out the sockets of killed processes.
func others(ctx context.Context, list func() ([]string, error)) string {
	sockets, err := list()
	if err != nil {
		return ""
	}
	there := slices.DeleteFunc(sockets, func(path string) bool {
		_, err := statussock.Read(ctx, path)
		return errors.Is(err, statussock.ErrNobody)
	})
	if len(there) == 0 {
		return ""
	}
	return "; there are: " + strings.Join(namesOf(there), ", ")
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
func (f *waitFlags) look(ctx context.Context, args []string, list func() ([]string, error)) error {
	path, err := awaited(args, list)
	var raw json.RawMessage
	if err == nil {
		raw, err = statussock.Read(ctx, path)
	}
	if err != nil {
		if exit.Status(err) == exit.Missing || errors.Is(err, statussock.ErrSilent) {
			err = f.missing("wait: " + reason(err))
		}
		return err
	}
	s, err := render.Parse(raw)
	switch {
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
	return f.missing(fmt.Sprintf("wait: %s %s", s.Host.Netdevice.Name, strings.ReplaceAll(why, "\n", "; ")))
}

// missing returns the error for a condition that does not hold at the end of the time-out.
func (f *waitFlags) missing(what string) error {
	if f.timeout > 0 {
		what += fmt.Sprintf(", after %v", f.timeout)
	}
	return exit.With(exit.TimedOut, errors.New(what))
}

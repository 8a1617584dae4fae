// Command splitnic is a virtual network card whose driver is split in two. Run `splitnic iounit`
// on the machine with the network card, and `splitnic host` on the machine that needs the
// netdevice. An RDMA fabric connects both.
package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/journal"
)

func main() {
	root, stop := rootCommand(), func() {}
	root.PersistentPreRun = func(c *cobra.Command, _ []string) {
		switch c.CommandPath() {
		case "splitnic host", "splitnic agent", "splitnic iounit":
			return // package daemon handles signals
		case "splitnic keygen", "splitnic check host", "splitnic check agent", "splitnic check iounit":
			return // a signal has to end them while they read a pipe
		}
		ctx, cancel := signal.NotifyContext(c.Context(), unix.SIGINT, unix.SIGTERM)
		c.SetContext(ctx)
		stop = cancel
	}
	environment := map[string]string{}
	for _, name := range []string{"NOTIFY_SOCKET", "LISTEN_FDS"} {
		environment[name] = os.Getenv(name) // which the daemon takes away
	}
	c, err := run(daemon.OwnProcess(context.Background()), root, os.Args[1:])
	stop()
	status := exit.Status(err)
	format := c.Flags().Lookup("log-format") // only a daemon has it
	if format != nil {
		status = exit.OfService(status, func(name string) string { return environment[name] })
	}
	if err != nil {
		// Each of the joined errors gets its own line.
		for _, err := range flat(err) {
			for line := range strings.SplitSeq(explain(err), "\n") {
				journal.Error(line, format != nil && logsJSON(format.Value.String(), os.Args))
			}
		}
	}
	os.Exit(status)
}

// logsJSON reports whether a daemon logs JSON: its flag says so, also behind one that is wrong, at
// which the flags are no longer parsed.
func logsJSON(format string, args []string) bool {
	const flag = "--log-format"
	i := slices.Index(args, flag)
	return format == "json" || slices.Contains(args, flag+"=json") || i >= 0 && i+1 < len(args) && args[i+1] == "json"
}

// run runs a command line, without the name of the program. It returns the command.
func run(ctx context.Context, root *cobra.Command, args []string) (*cobra.Command, error) {
	if err := helpOfUnknown(root, args); err != nil {
		return root, err
	}
	root.SetArgs(args)
	out := &output{Writer: root.OutOrStdout()}
	root.SetOut(out)
	c, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = out.err
	}
	return c, err
}

func rootCommand() *cobra.Command {
	root := group(&cobra.Command{
		Use:           "splitnic",
		Short:         "A virtual network card split across an RDMA fabric",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}, hostCommand(), agentCommand(), cardCommand(), iounitCommand(), keygenCommand(), doctorCommand(), checkCommand(),
		completing(statusCommand(), anyRole), completing(topCommand(), anyRole), completing(waitCommand(), anyRole),
		completing(statsCommand(), hostRole), completing(resetCommand(), hostRole), completing(reloadCommand(), anyRole),
		completing(captureCommand(), frameRole),
		benchCommand(), versionCommand(), manCommand())
	completeValues(root)
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		group(completion)
	}
	root.SetHelpCommand(helpCommand())
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(help)
	return root
}

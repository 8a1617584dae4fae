// Command splitnic is a virtual network card whose driver is split in two: run
// `splitnic iounit` where the network card is, `splitnic host` where the
// netdevice is wanted, and an RDMA fabric in between.
package main

import (
	"context"
	"os"
	"os/signal"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/journal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	err := rootCommand().ExecuteContext(daemon.OwnProcess(ctx))
	stop()
	if err != nil {
		// One line for each error, however many were joined.
		for line := range strings.SplitSeq(err.Error(), "\n") {
			journal.Error("splitnic: " + line)
		}
	}
	os.Exit(exit.Status(err))
}

func rootCommand() *cobra.Command {
	root := group(&cobra.Command{
		Use:           "splitnic",
		Short:         "A virtual network card split across an RDMA fabric",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}, hostCommand(), agentCommand(), cardCommand(), iounitCommand(), keygenCommand(), doctorCommand(), checkCommand(),
		completing(statusCommand(), true), completing(topCommand(), true), completing(waitCommand(), true),
		completing(statsCommand(), false), completing(resetCommand(), false), completing(reloadCommand(), true),
		completing(captureCommand(), true),
		benchCommand(), versionCommand(), manCommand())
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return exit.Usagef("%w; see `%s --help`", err, c.CommandPath())
	})
	root.SetHelpFunc(help)
	return root
}

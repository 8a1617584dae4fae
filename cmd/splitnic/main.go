// Command splitnic is a virtual network card whose driver is split in two: run
// `splitnic iounit` where the network card is, `splitnic host` where the
// netdevice is wanted, and an RDMA fabric in between.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// version is set by the linker.
var version = "devel"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	root := rootCommand()
	err := root.ExecuteContext(context.WithValue(ctx, processKey{}, true))
	stop()
	if err != nil {
		// One line for each error, however many were joined.
		for line := range strings.SplitSeq(err.Error(), "\n") {
			fmt.Fprintln(os.Stderr, "splitnic:", line)
		}
	}
	os.Exit(exitStatus(err))
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "splitnic",
		Short:         "A virtual network card split across an RDMA fabric",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; see `%s --help`", err, c.CommandPath())}
	})
	group(root)
	root.AddCommand(hostCommand(), iounitCommand(), keygenCommand(), doctorCommand(), statusCommand(), statsCommand(), resetCommand(), reloadCommand(), benchCommand(), manCommand())
	for _, c := range root.Commands() {
		if c.Args == nil {
			continue
		}
		check := c.Args
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return usageError{fmt.Errorf("%w; see `%s --help`", err, c.CommandPath())}
			}
			return nil
		}
	}
	return root
}

// noArgs is for commands without arguments.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%q: there is nothing but flags after `%s`", args[0], c.CommandPath())
	}
	return nil
}

// group makes c a command that is only there for its subcommands: alone it
// shows its help, and a subcommand that there is not is a mistake.
func group(c *cobra.Command) {
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		return usageError{fmt.Errorf("unknown command %q; see `%s --help`", args[0], c.CommandPath())}
	}
}

// moreProcs gives the Go scheduler a P for each of n threads that move frames
// on top of those for the rest: a thread that wakes while every P is taken
// waits for milliseconds. There are never fewer than before.
func moreProcs(n int) {
	if n += runtime.NumCPU(); n > runtime.GOMAXPROCS(0) {
		runtime.GOMAXPROCS(n)
	}
}

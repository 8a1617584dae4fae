package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/bench"
)

func benchCommand() *cobra.Command {
	c := group(&cobra.Command{
		Use:     "bench",
		Short:   "Measure the messaging layer",
		Long:    sweepLong,
		Example: "  splitnic bench --sweep --device rxe0 --peer-device rxe1",
	}, benchKindCommand(bench.BW), benchKindCommand(bench.Lat), benchKindCommand(bench.PPS))
	var f sweepFlags
	f.add(c.Flags())
	otherwise := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(f.of) == 0 || len(args) > 0 {
			return otherwise(cmd, args)
		}
		return f.run(cmd)
	}
	return c
}

const benchLong = `%s.

Frames go from memory to memory: this measures the messaging layer and the fabric, without a
netdevice.

To measure between two nodes, start the command with --listen on one node. It prints the
command for the other node, which takes the parameters of the measurement. The nodes
authenticate each other by keys derived from a secret, before they exchange data about queue
pairs. Pass the secret in the variable %s, or in a file, because
every user of a machine can read arguments.

Without --listen and ADDR both ends are in this process, on one RDMA device or two.

With --json each measurement is one line with one JSON object.`

func benchKindCommand(kind bench.Kind) *cobra.Command {
	f := benchFlags{benchConfig: benchConfig{kind: kind}}
	name := "splitnic bench " + string(kind)
	c := &cobra.Command{
		Use:   string(kind) + " [--device DEVICE] [--peer-device DEVICE | --listen ADDR | ADDR[:PORT]]",
		Short: benchKinds[kind].short,
		Long:  fmt.Sprintf(benchLong, benchKinds[kind].short, secretVariable),
		Example: "  " + name + " --listen 10.0.0.1\n" +
			"  " + secretVariable + "=… " + name + " --device rxe1 10.0.0.1\n" +
			"  " + name + " --device rxe0 --peer-device rxe1",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return exit.Usagef("%q: one address of the other node is enough; see `%s --help`", args, name)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				f.addr = args[0]
			}
			b, err := f.config(cmd.Flags())
			if err != nil {
				return err
			}
			return interrupted(cmd, b.run(cmd))
		},
	}
	f.add(c.Flags())
	return c
}

func (b *benchConfig) run(cmd *cobra.Command) error {
	if b.listen != "" {
		return b.serve(cmd)
	}
	if b.addr != "" {
		return b.connect(cmd)
	}
	return b.both(cmd)
}

package main

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
)

// agentFlags has the flags of `splitnic agent`: its own, and those flags of a host that do not
// concern a single card.
type agentFlags struct {
	hostFlags
	maxCards int
}

// mostCards is the maximum of --max-cards, more than fit into the memory of any machine.
const mostCards = 4096

func agentCommand() *cobra.Command {
	var f agentFlags
	c := &cobra.Command{
		Use:   "agent [flags]",
		Short: "Run any number of cards on this machine, for example for its containers",
		Long: `Run any number of cards on this machine, for example for its containers. Each card is like
a ` + "`splitnic host`" + `, with its own netdevice, sessions, counters and status. ` + "`splitnic card`" + `
makes and removes cards. The flags are the defaults for cards.

The cards are made again when the agent is restarted. If the service manager keeps their
netdevices, connections survive.`,
		Example: `  splitnic agent --iounit 10.0.0.1 --trust sha256:… --device mlx5_0
  splitnic card add web --netns pod1 --netdev eth0`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return daemon.RunAgent(cmd.Context(), func() (daemon.Agent, error) { return f.read(cmd) })
		},
	}
	f.add(c.Flags())
	return c
}

func (f *agentFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.set.State, "state", agentPlaces.state, "directory in which cards and answers of DNS are recorded for the next process")
	flags.IntVar(&f.maxCards, "max-cards", 256, "most cards")
	inGroup(flags, identityFlags)
	f.addUnits(flags)
	f.addNetdevice(flags)
	f.addSessions(flags)
}

func (f *agentFlags) read(c *cobra.Command) (daemon.Agent, error) {
	o, err := readConfig(c, f.set.ConfigFile)
	if err != nil {
		return daemon.Agent{}, err
	}
	f.set.Reread = o.reread(addHostSources)
	return f.config()
}

func (f *agentFlags) config() (daemon.Agent, error) {
	h, err := f.shared()
	f.port = "tap"
	errs := mistakes{err, f.netdevice(&h), between("--max-cards", f.maxCards, 1, mostCards, ""), checkState(f.set.State)}
	h.Movable = true
	return daemon.Agent{Host: h, MaxCards: f.maxCards}, errors.Join(errs...)
}

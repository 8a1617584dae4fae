package main

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/units"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// The largest values of advanced.direct-after and advanced.direct-peers.
const (
	maxDirectAfter = 1_000_000_000
	maxDirectPeers = 1024
)

// iounitFlags has the flags of `splitnic iounit`: a configuration, which some flags set directly,
// and the values that have to be parsed first.
type iounitFlags struct {
	set daemon.IOUnit
	daemonFlags
	maxMemory string
	modes     []string
}

func iounitCommand() *cobra.Command {
	var f iounitFlags
	c := &cobra.Command{
		Use:   "iounit --lan [KIND:]NIC [flags]",
		Short: "Share a network card of this machine with hosts across the fabric",
		Example: `  splitnic iounit --lan eth1 --trust alpha=sha256:… --trust beta=sha256:…
  splitnic iounit --config /etc/splitnic/iounit.yaml`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			u, err := configure(cmd, &f.set.Common, addUnitSources, f.config)
			if err != nil {
				return err
			}
			return daemon.RunIOUnit(cmd.Context(), u)
		},
	}
	f.add(c.Flags())
	c.AddCommand(iounitHandlersCommand(), completing(drainCommand(), unitRole),
		completing(undrainCommand(), unitRole), disconnectCommand())
	return c
}

func (f *iounitFlags) add(flags *pflag.FlagSet) {
	u := &f.set
	flags.StringVar(&u.Name, "name", "", "name of this I/O unit for hosts (default: the host name)")
	flags.StringVar(&u.Listen, "listen", fmt.Sprintf(":%d", session.DefaultPort), "address to listen on for hosts")
	inGroup(flags, identityFlags)
	flags.StringVar(&u.LAN, "lan", "", strings.Join(append(
		[]string{"network card to share: NIC or " + lan.Usage()}, lan.Notes()...), "; "))
	flags.StringVar(&u.NetNS, "netns", "", "network namespace of the network card, by name or path (default: this process's)")
	inGroup(flags, netdeviceFlags)
	flags.IntVar(&u.Queues, "queues", 0, "maximum number of queues of a host (default: see splitnic doctor)")
	flags.StringSliceVar(&f.modes, "modes", modeNames(), "transfer modes to allow")
	boolVar(flags, &u.Direct, "direct", true, "let two hosts that exchange many frames connect directly to each other, if the "+
		"policy allows it")
	inGroup(flags, performanceFlags)
	flags.IntVar(&u.DirectAfter, "direct-after", 1000, "packets per second between two hosts above which they get a "+
		"direct connection; 0: with the first packet")
	flags.IntVar(&u.DirectPeers, "direct-peers", 64, "maximum number of direct connections of a host")
	advanced(flags, performanceFlags)
	flags.IntVar(&u.MaxHosts, "max-hosts", 64, "maximum number of hosts")
	flags.StringVar(&f.maxMemory, "max-memory", "",
		"maximum memory to register for all hosts together, such as 2G or 2Gi, in powers of 1024 (default: no limit)")
	inGroup(flags, reliabilityFlags)
	addPolicy(flags, &u.Policy)
	f.daemonFlags.add(flags, &u.Common, true, "allow hosts an additional data channel for latency-sensitive frames")
}

func addPolicy(flags *pflag.FlagSet, path *string) {
	flags.StringVar(path, "policy", "", "YAML file with the permissions of each host; "+
		"its rates are in powers of 1000, its sizes in powers of 1024")
	inGroup(flags, securityFlags)
}

// addUnitSources adds the flags that an I/O unit reads again on a reload.
func addUnitSources(flags *pflag.FlagSet, s *daemon.Sources) {
	addKeys(flags, &s.Keys)
	addPolicy(flags, &s.Policy)
	addLogLevel(flags, &s.LogLevel)
}

func (f *iounitFlags) config() (daemon.IOUnit, error) {
	u := f.set
	var errs mistakes
	var err error
	if u.LAN == "" {
		errs.add("--lan is missing: the network card to share, such as --lan eth1")
	} else if u.Kind, u.NIC, err = lan.ParseSpec(u.LAN); err != nil {
		errs.add("--lan: %w", err)
	}
	if u.Name != "" {
		errs = append(errs, daemon.CheckName("--name", u.Name))
	}
	// A number without a colon would be taken for the name of a machine.
	alone := u.Listen != "" && strings.Trim(u.Listen, "0123456789") == ""
	if alone || !canListen(session.WithPort(u.Listen)) {
		errs.add("--listen %q: must be ADDRESS, ADDRESS:PORT or :PORT, such as :%d", u.Listen, session.DefaultPort)
	}
	card := u.Kind.Facts()
	if !card.Netdevice() && u.NetNS != "" {
		errs.add("--netns: %s are in no network namespace; omit the flag", card.Outside)
	}
	if u.Queues < 0 || u.Queues > cq.MaxQueues {
		errs.add("--queues %d: must be 1 to %d, or 0 for the default", u.Queues, cq.MaxQueues)
	}
	if u.MaxHosts < 1 {
		errs.add("--max-hosts %d: must be at least 1", u.MaxHosts)
	}
	common := f.complete(&u.Common)
	errs = append(errs, common, between("advanced.direct-after", u.DirectAfter, 0, maxDirectAfter, ""),
		between("advanced.direct-peers", u.DirectPeers, 1, maxDirectPeers, ""))
	if !card.Latency {
		u.Latency = nil
	}
	if u.Modes, err = parseModes("--modes", f.modes); err == nil && common == nil { // --max-memory depends on both
		u.MaxMemory, err = f.memory(&u)
	}
	return u, errors.Join(append(errs, err)...)
}

// memory returns the value of --max-memory, 0 for no limit. It must be enough for one session in
// one of the modes.
func (f *iounitFlags) memory(u *daemon.IOUnit) (int64, error) {
	if f.maxMemory == "" {
		return 0, nil
	}
	limit, err := units.Memory(f.maxMemory)
	least := leastMemory(u.Messaging, u.Modes)
	switch {
	case err != nil:
	case limit == 0:
		err = errors.New("must be above 0; omit the flag for no limit")
	case limit < least:
		err = fmt.Errorf("%s is not enough for one session, which takes %s or more; a size has a unit, such as 2G",
			units.Size(limit), units.AtLeast(least))
	}
	if err != nil {
		return 0, exit.Usagef("--max-memory: %w", err)
	}
	return limit, nil
}

// leastMemory returns the memory in bytes of the smallest session that a host can have.
func leastMemory(cfg messaging.Config, modes []protocol.Mode) int64 {
	least := int64(math.MaxInt64)
	cfg.Queues, cfg.LatencyQueue, cfg.MTU, cfg.PeerPools = 1, false, protocol.MinMTU, 1
	for _, mode := range modes {
		cfg.Mode = mode
		if mode.Sends() {
			cfg.MaxPools = 0 // the default, one: these modes allow no other number
		}
		least = min(least, cfg.LeastMemory())
	}
	return least
}

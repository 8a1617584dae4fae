package main

import (
	"errors"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/cmd/internal/cards"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/units"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host/discovery"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vhostuser"
	"github.com/splitnic/splitnic/vnet"
)

// hostFlags has the flags of `splitnic host`: a configuration, which some flags set directly, and
// the values that have to be parsed first.
type hostFlags struct {
	set daemon.Host
	daemonFlags
	direct              directFlags
	mac, offloads, port string
	zeroCopy            string
	modes               []string
}

func hostCommand() *cobra.Command {
	var f hostFlags
	c := &cobra.Command{
		Use:   "host --iounit ADDRESS[,ADDRESS…] [flags]",
		Short: "Give this machine an Ethernet device whose network card is in an I/O unit",
		Example: `  splitnic host --iounit 10.0.0.1 --trust sha256:… --name sn0
  splitnic host --iounit srv:_splitnic._tcp.fabric.example --trust-file /etc/splitnic/iounits
  splitnic host --config /etc/splitnic/host.yaml`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return daemon.RunHost(cmd.Context(), func() (daemon.Host, error) {
				return configure(cmd, &f.set.Common, addHostSources, f.config)
			})
		},
	}
	f.add(c.Flags())
	c.AddCommand(hostHandlersCommand(), failoverCommand())
	return c
}

func (f *hostFlags) add(flags *pflag.FlagSet) {
	h := &f.set
	f.addUnits(flags)
	flags.StringVar(&h.Name, "host-name", "", "name that the I/O unit knows this host by (default: HOSTNAME.NAME)")
	flags.StringVar(&h.State, "state", agentPlaces.state, "directory in which the last answers of DNS are kept, with srv:NAME, "+
		"for a process that gets none")
	inGroup(flags, identityFlags)
	flags.StringVar(&h.Netdevice, "name", "sn0", "name of the netdevice to make")
	flags.StringVar(&f.port, "port", "tap",
		"kind of netdevice: tap, a device of this kernel; or vhost-user:PATH, a virtio-net device for a virtual machine "+
			"or DPDK program that connects to this socket; with vhost-user:PATH,client it listens there")
	flags.StringVar(&f.mac, "mac", "", "MAC address to request (default: one that the I/O unit derives from the key)")
	inGroup(flags, netdeviceFlags)
	flags.StringVar(&f.zeroCopy, "vhost-zero-copy", "0",
		"maximum memory of a vhost-user port's front end to register, such as 8G or 8Gi, to send long frames without "+
			"a copy; must cover all guest memory, which is pinned; not for machines with a balloon. 0: none")
	advanced(flags, netdeviceFlags)
	f.addNetdevice(flags)
	flags.StringVar(&h.NetNS, "netns", "", "network namespace for the netdevice, by name or path (default: this process's)")
	boolVar(flags, &h.Movable, "movable", false, "follow the netdevice into other network namespaces, such as that of a container; "+
		"keeps CAP_SYS_ADMIN, as --netns does")
	inGroup(flags, netdeviceFlags)
	f.addSessions(flags)
}

// addUnits adds the flag about I/O units, which an agent has, too.
func (f *hostFlags) addUnits(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.set.IOUnits, "iounit", nil,
		"address of an I/O unit, as host or host:port, or srv:NAME for those in the SRV records of NAME; "+
			"several in order of preference")
	inGroup(flags, identityFlags)
}

// addNetdevice adds the flags about the netdevice that an agent has, too.
func (f *hostFlags) addNetdevice(flags *pflag.FlagSet) {
	h := &f.set
	flags.IntVar(&h.MaxMTU, "max-mtu", 9000,
		"largest MTU to accept; the netdevice follows the I/O unit's network card up to it")
	flags.StringVar(&f.offloads, "offloads", "all",
		"offloads for the I/O unit to carry out: all, none, or some of "+vnet.AllOffloads.String())
	boolVar(flags, &h.Persist, "persist", false,
		"keep the netdevice after this process ends, for the next one with this flag "+
			"(not needed for systemd services)")
	inGroup(flags, netdeviceFlags)
	boolVar(flags, &h.Plain, "plain", false, "make a plain TAP device without offloads, for kernels without IFF_VNET_HDR")
	flags.IntVar(&h.TxQueueLen, "txqueuelen", 512, "length of the netdevice's transmit queue in frames")
	advanced(flags, netdeviceFlags)
}

// addSessions adds the flags about sessions, which an agent has, too.
func (f *hostFlags) addSessions(flags *pflag.FlagSet) {
	h := &f.set
	flags.IntVar(&h.Queues, "queues", 1, "queues to request, each with its own data channel")
	flags.StringSliceVar(&f.modes, "mode", []string{string(protocol.ModeImm)},
		"transfer modes in order of preference: some of "+
			strings.Join(modeNames(), ", ")+"; the I/O unit uses the first that it allows")
	inGroup(flags, performanceFlags)
	boolVar(flags, &h.Standby, "standby", false,
		"keep a second session ready with the next I/O unit: faster fail-over, twice the memory")
	flags.DurationVar(&h.FailBack, "fail-back", 0,
		"return to a preferred I/O unit after it has been reachable for this long (default: never)")
	inGroup(flags, reliabilityFlags)
	f.direct.add(flags, &h.Direct)
	addNames(flags, &h.Keys)
	f.daemonFlags.add(flags, &h.Common, false,
		"add a queue and data channel for latency-sensitive frames, if the I/O unit supports it")
}

// addHostSources adds the flags that a host reads again on a reload.
func addHostSources(flags *pflag.FlagSet, s *daemon.Sources) {
	addKeys(flags, &s.Keys)
	addNames(flags, &s.Keys)
	addLogLevel(flags, &s.LogLevel)
}

func (f *hostFlags) config() (daemon.Host, error) {
	var errs mistakes
	if len(f.set.IOUnits) == 0 {
		errs.add("--iounit is missing: the address of the I/O unit, such as --iounit 10.0.0.1")
	}
	errs = append(errs, checkState(f.set.State))
	if f.set.Name != "" {
		errs = append(errs, daemon.CheckName("--host-name", f.set.Name))
	}
	if f.set.Standby && len(f.set.IOUnits) > 0 && !discovery.Several(f.set.IOUnits) {
		errs.add("--standby: there is one I/O unit only; name another with --iounit")
	}
	if len(f.set.Netdevice) >= unix.IFNAMSIZ {
		errs.add("--name %s: must have at most %d characters", f.set.Netdevice, unix.IFNAMSIZ-1)
	} else if err := tap.CheckName(f.set.Netdevice); err != nil {
		errs.add("--name %q: %w", f.set.Netdevice, err)
	}
	h, err := f.shared()
	return h, errors.Join(append(errs, err, f.netdevice(&h))...)
}

// shared returns the configuration that the flags specify which an agent has, too.
func (f *hostFlags) shared() (daemon.Host, error) {
	h := f.set
	var errs mistakes
	errs = append(errs, f.complete(&h.Common), f.direct.complete(&h.Direct),
		between("--queues", h.Queues, 1, cq.MaxQueues, ""),
		between("--max-mtu", h.MaxMTU, protocol.MinMTU, protocol.MaxMTU, ""))
	errs = append(errs, between("advanced.txqueuelen", h.TxQueueLen, 1, tap.MaxTxQueueLen, ""))
	errs = append(errs, checkUnits(h.IOUnits)...)
	if h.FailBack < 0 {
		errs.add("--fail-back %v: must be above 0, or 0 for never", h.FailBack)
	}
	if h.Latency != nil && h.Queues == cq.MaxQueues {
		errs.add("--queues %d: must be 1 to %d: with --latency-queue there can be one less", h.Queues, cq.MaxQueues)
	}
	var err error
	h.Modes, err = parseModes("--mode", f.modes)
	return h, errors.Join(append(errs, err)...)
}

// checkState returns an error for a relative path, which would depend on the working directory.
func checkState(dir string) error {
	if !filepath.IsAbs(dir) {
		return exit.Usagef("--state %q: must be an absolute path", dir)
	}
	return nil
}

func checkUnits(iounits []string) (errs mistakes) {
	for _, err := range cards.CheckIOUnits(iounits) {
		errs.add("--iounit %w", err)
	}
	return errs
}

func (f *hostFlags) netdevice(h *daemon.Host) error {
	var errs mistakes
	var err error
	if f.mac != "" {
		if h.MAC, err = protocol.ParseMAC(f.mac); err != nil {
			errs.add("--mac: %w", err)
		}
	}
	switch {
	case f.port != "tap":
		errs = append(errs, f.vhostUser(h))
	case f.zeroCopy != "0" && f.zeroCopy != "": // empty for an agent, which does not have the flag
		errs.add("advanced.vhost-zero-copy: needs --port vhost-user:PATH")
	}
	switch {
	case h.Plain || f.offloads == "none":
	case f.offloads == "all":
		h.Offloads = vnet.AllOffloads
	default:
		if h.Offloads, err = vnet.ParseOffloads(f.offloads); err != nil {
			errs.add("--offloads: %w", err)
		}
	}
	return errors.Join(errs...)
}

// vhostUser parses the address of the port. It returns an error for flags that need a TAP device.
func (f *hostFlags) vhostUser(h *daemon.Host) (err error) {
	if h.Port, err = vhostuser.ParseAddress(f.port); err != nil {
		return exit.Usagef("--port %w", err)
	}
	var errs mistakes
	if h.ZeroCopy, err = units.Memory(f.zeroCopy); err != nil {
		errs.add("advanced.vhost-zero-copy: %w", err)
	}
	for _, other := range []struct {
		set  bool
		flag string
	}{
		{h.Plain, "advanced.plain"}, {h.Persist, "--persist"}, {h.Movable, "--movable"}, {h.NetNS != "", "--netns"},
		{h.Latency != nil, "--latency-queue"},
	} {
		if other.set {
			errs.add("%s: needs a TAP device; omit it, or omit --port", other.flag)
		}
	}
	return errors.Join(errs...)
}

// directFlags are the flags of `splitnic host` about direct connections to other hosts.
type directFlags struct{ memory string }

func (f *directFlags) add(flags *pflag.FlagSet, d *daemon.Direct) {
	boolVar(flags, &d.On, "direct", true,
		"connect directly to other hosts of the I/O unit, if it permits that: frames then bypass the I/O unit")
	inGroup(flags, performanceFlags)
	flags.IntVar(&d.Peers, "direct-peers", 64, "maximum number of direct connections")
	flags.DurationVar(&d.Idle, "direct-idle", time.Minute, "end a direct connection after this long without a frame")
	flags.StringVar(&f.memory, "direct-memory", "512Mi",
		"maximum memory to register for all direct connections together, such as 1G or 1Gi, in powers of 1024")
	advanced(flags, performanceFlags)
	flags.DurationVar(&d.Grace, "direct-grace", 2*time.Second,
		"end direct connections after this long without an I/O unit that permits them")
	advanced(flags, reliabilityFlags)
}

func (f *directFlags) complete(d *daemon.Direct) (err error) {
	d.Memory, err = units.Memory(f.memory)
	if err == nil && d.Memory == 0 {
		err = errors.New("must be above 0; --direct=no disables direct connections")
	}
	if err != nil {
		err = exit.Usagef("advanced.direct-memory: %w", err)
	}
	return errors.Join(err, positive("advanced.direct-idle", d.Idle), positive("advanced.direct-grace", d.Grace),
		between("advanced.direct-peers", d.Peers, 1, maxHostDirectPeers, ""))
}

// maxHostDirectPeers is the maximum of advanced.direct-peers, more than fit into the memory of any
// machine.
const maxHostDirectPeers = 4096

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
			return daemon.RunAgent(cmd.Context(), func() (daemon.Agent, error) {
				return configure(cmd, &f.set.Common, addHostSources, f.config)
			})
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

func (f *agentFlags) config() (daemon.Agent, error) {
	h, err := f.shared()
	f.port = "tap"
	errs := mistakes{err, f.netdevice(&h), between("--max-cards", f.maxCards, 1, mostCards, ""), checkState(f.set.State)}
	h.Movable = true
	return daemon.Agent{Host: h, MaxCards: f.maxCards}, errors.Join(errs...)
}

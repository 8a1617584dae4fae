package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/internal/units"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap/steer"
	"github.com/splitnic/splitnic/vnet"
)

// iounitFlags are the flags of `splitnic iounit`.
type iounitFlags struct {
	daemonFlags
	latency           latencyFlags
	listen, lan       string
	policy, maxMemory string
	modes             []string
	maxHosts          int
}

func iounitCommand() *cobra.Command {
	var f iounitFlags
	c := &cobra.Command{
		Use:   "iounit --lan [KIND:]NIC [flags]",
		Short: "Share a network card of this machine with hosts across the fabric",
		Example: `  splitnic iounit --lan eth1 --trust alpha=sha256:… --trust beta=sha256:…
  splitnic iounit --config /etc/splitnic/iounit.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if f.origin, err = readConfig(cmd, f.config); err != nil {
				return err
			}
			if err := limit(cmd.Context(), f.privileges()); err != nil {
				return err
			}
			return f.run(cmd.Context())
		},
	}
	f.add(c)
	c.AddCommand(iounitHandlersCommand())
	flags := c.Flags()
	flags.StringVar(&f.listen, "listen", fmt.Sprintf(":%d", session.DefaultPort), "address to listen on for hosts")
	flags.StringVar(&f.lan, "lan", "", "the network card: NIC or macvtap:NIC, packet:NIC, or tap:BRIDGE")
	flags.StringVar(&f.daemonFlags.name, "name", "", "name that hosts see (default: the host name)")
	flags.IntVar(&f.queues, "queues", 0, "queues that a host can have (default: see splitnic doctor)")
	flags.IntVar(&f.maxHosts, "max-hosts", 64, "hosts at a time")
	addPolicy(flags, &f.policy)
	flags.StringSliceVar(&f.modes, "modes", modeNames(), "transfer modes that hosts can choose")
	flags.StringVar(&f.maxMemory, "max-memory", "", "memory to register for all hosts together, such as 2G or 2Gi, in powers of 1024 (default: no limit)")
	f.latency.add(flags, true, "let hosts that want one have a data channel more, for latency-sensitive frames")
	flags.StringVar(&f.netns, "netns", "", "network namespace of the network card, by name or path (default: this process's)")
	return c
}

func (f *iounitFlags) run(ctx context.Context) (err error) {
	log, err := f.logger()
	if err != nil {
		return err
	}
	if f.lan == "" {
		return usageError{errors.New("--lan is missing: the network card to share, such as --lan eth1")}
	}
	kind, nic, err := lan.ParseSpec(f.lan)
	if err != nil {
		return usageError{fmt.Errorf("--lan: %w", err)}
	}
	if f.queues < 0 || f.queues > messaging.MaxQueues {
		return usageError{fmt.Errorf("--queues %d: must be 1 to %d, or 0 for the default", f.queues, messaging.MaxQueues)}
	}
	if f.maxHosts < 1 {
		return usageError{fmt.Errorf("--max-hosts %d: must be at least 1", f.maxHosts)}
	}
	name := f.daemonFlags.name
	if name == "" {
		name = hostname()
	}
	if !session.ValidName(name) {
		return invalidName("--name", name)
	}
	mcfg, err := f.messaging()
	if err != nil {
		return err
	}
	classes, err := f.latency.apply(&mcfg)
	if err != nil {
		return err
	}
	modes, err := parseModes("--modes", f.modes)
	if err != nil {
		return err
	}
	if mcfg.Budget, err = f.budget(mcfg, modes); err != nil {
		return err
	}
	rules, err := loadPolicy(f.policy)
	if err != nil {
		return err
	}
	if err := notDumpable(); err != nil {
		return err
	}
	security, err := f.security()
	if err != nil {
		return err
	}
	f.warnInsecure(log)
	card, err := lan.NewCard(f.lan, f.netns)
	if err != nil {
		return err
	}
	info, err := card.Info()
	if err != nil {
		return exitError{code: exitMissing, err: fmt.Errorf("--lan %s: %w", f.lan, err)}
	}
	if err := info.Suits(kind); err != nil {
		code := exitUsage
		if errors.Is(err, syscall.EBUSY) {
			code = exitAddressInUse
		}
		return exitError{code: code, err: fmt.Errorf("--lan %s: %w", f.lan, err)}
	}
	if err := f.checkCapability(kind); err != nil {
		return err
	}
	claim, err := claimCard(statussock.Dir, nic, f.netns)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, claim.Close()) }()
	device, err := f.openDevice()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	mcfg.Timing.Timeout = f.qpTimeout(device)
	if f.queues == 0 {
		f.queues = defaultQueues(device.Limits().CompVectors)
	}
	queues := min(f.queues+extra(classes), messaging.MaxQueues)
	if err := f.handlerFlags.apply(&mcfg, f.queues, device.Limits().CompVectors); err != nil {
		return err
	}

	// The card is ours: no other I/O unit is at work on it. One that was killed
	// may have had another kind of interface.
	removed, err := lan.CleanStale(nic, f.netns)
	if err != nil {
		return err
	}
	if len(removed) > 0 {
		log.Warn("removed what a killed process left", "devices", removed)
	}
	restore, err := lan.Prepare(nic, f.netns)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, restore()) }()

	unit, err := iounit.New(iounit.Config{
		Name: name, Software: version, Device: device,
		OpenLAN: func(mac net.HardwareAddr, queues int) (lan.Interface, error) {
			return card.Open(lan.Config{MAC: mac, Queues: queues, Offloads: vnet.AllOffloads})
		},
		Latency: classes,
		OpenLatencyLAN: func(mac net.HardwareAddr, rule steer.Rule) (lan.Interface, error) {
			return card.Open(lan.Config{MAC: mac, Queues: rule.Queues, Offloads: vnet.AllOffloads, Latency: &rule})
		},
		LinkState: func() (lan.LinkState, error) {
			info, err := card.Info()
			return info.LinkState, err
		},
		CardMAC: func() protocol.MAC {
			info, err := card.Info()
			if err != nil || len(info.MAC) != len(protocol.MAC{}) {
				return protocol.MAC{} // a card that is gone has no address
			}
			return protocol.MAC(info.MAC)
		},
		MaxQueues: f.queues, MaxHosts: f.maxHosts, Modes: modes, Policy: rules, Messaging: mcfg, Log: log,
	})
	if err != nil {
		return err
	}
	ln, err := session.Listen(f.listen, session.ServerConfig{
		Security: security, PeerTimeout: f.peerTimeout, HandshakeTimeout: f.handshakeTimeout,
		Burst: unit.Burst, Rejected: unit.Rejected,
		// All hosts may come at once, as after a restart of this process.
		MaxHandshakes: max(session.DefaultMaxHandshakes, f.maxHosts),
	})
	if err != nil {
		return explainListen("--listen", err)
	}
	defer func() { err = errors.Join(err, ln.Close()) }()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	reloads := newReloader(f.origin, security, unit.SetPolicy, log)
	defer reloads.start(ctx)()
	stop, err := f.serveStatus("iounit-"+port, func() any { return unitView{unit.Status(), reloads.status()} }, iounitMetrics(unit, reloads), log, reloads.command(), handlersTaker(func(o handlersOrder) error {
		return unit.ChangeHandlers(o.Host, o.Change)
	}, boundProcs(queues, f.maxHosts)))
	if err != nil {
		return err
	}
	defer stop()
	moreProcs(2*queues + 2)
	if f.bound() {
		moreProcs(boundProcs(queues, f.maxHosts))
	}
	log.Info("I/O unit", "listen", ln.Addr(), "lan", f.lan, "device", device.Name(), "key", security.Fingerprint(), "queues", f.queues, "version", version)
	notify(fmt.Sprintf("READY=1\nSTATUS=serving %s at %v", f.lan, ln.Addr()))
	defer notify(stopping)
	return unit.Run(ctx, ln)
}

// budget is what --max-memory says, nil for no limit. It has to be enough for one
// session in one of the modes.
func (f *iounitFlags) budget(cfg messaging.Config, modes []protocol.Mode) (*messaging.Budget, error) {
	if f.maxMemory == "" {
		return nil, nil
	}
	limit, err := units.Memory(f.maxMemory)
	least := leastMemory(cfg, modes)
	switch {
	case err != nil:
	case limit == 0:
		err = errors.New("must be above 0; leave the flag out for no limit")
	case limit < least:
		err = fmt.Errorf("%d bytes are not enough for one session, which takes %d or more; a size has a unit, such as 2G", limit, least)
	}
	if err != nil {
		return nil, usageError{fmt.Errorf("--max-memory: %w", err)}
	}
	return messaging.NewBudget(limit), nil
}

// leastMemory is how many bytes the smallest session takes that any host can have.
func leastMemory(cfg messaging.Config, modes []protocol.Mode) int64 {
	least := int64(math.MaxInt64)
	cfg.Queues, cfg.LatencyQueue, cfg.MTU, cfg.PeerPools = 1, false, protocol.MinMTU, 1
	for _, mode := range modes {
		cfg.Mode = mode
		if mode.Sends() {
			cfg.MaxPools = 0 // one: there is no other choice
		}
		least = min(least, cfg.LeastMemory())
	}
	return least
}

func addPolicy(flags *pflag.FlagSet, path *string) {
	flags.StringVar(path, "policy", "", "YAML file that says what each host may do")
}

func loadPolicy(path string) (*policy.Policy, error) {
	if path == "" {
		return policy.Default(), nil
	}
	p, err := policy.Load(path)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("--policy: %w", err) // no mistake in it
	case err != nil:
		return nil, usageError{fmt.Errorf("--policy: %w", err)}
	}
	return p, nil
}

// checkCapability tells at once about a capability that is needed only when
// the first host comes.
func (f *iounitFlags) checkCapability(kind lan.Kind) error {
	name, bit := "CAP_NET_ADMIN", uint(unix.CAP_NET_ADMIN)
	if kind == lan.Packet {
		name, bit = "CAP_NET_RAW", unix.CAP_NET_RAW
	}
	has, err := capabilities()
	if err != nil || has(bit) {
		return nil // what cannot be told now, the kernel will tell
	}
	return exitError{code: exitPermission, err: fmt.Errorf("--lan %s: %s is missing; run as root, or give the service AmbientCapabilities=%s", f.lan, name, name)}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vnet"
)

// hostFlags are the flags of `splitnic host`.
type hostFlags struct {
	daemonFlags
	latency    latencyFlags
	ifname     string
	iounits    []string
	mac        string
	maxMTU     int
	offloads   string
	modes      []string
	plain      bool
	txQueueLen int
	failBack   time.Duration
	standby    bool
	persist    bool
	movable    bool
}

func hostCommand() *cobra.Command {
	var f hostFlags
	c := &cobra.Command{
		Use:   "host --iounit ADDRESS[,ADDRESS…] [flags]",
		Short: "Give this machine an Ethernet device whose network card is on an I/O unit",
		Example: `  splitnic host --iounit 10.0.0.1 --trust sha256:… --name sn0
  splitnic host --config /etc/splitnic/host.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.start(cmd) },
	}
	f.add(c)
	c.AddCommand(hostHandlersCommand(), failoverCommand())
	flags := c.Flags()
	flags.StringSliceVar(&f.iounits, "iounit", nil, "address of an I/O unit, as host or host:port; several in order of preference")
	f.addNames(flags)
	flags.DurationVar(&f.failBack, "fail-back", 0, "time for which a preferred I/O unit has to be reachable until the host goes back to it (default: never)")
	flags.BoolVar(&f.standby, "standby", false, "keep a second session ready with the next I/O unit: fail-over takes less time, and the sessions twice the memory")
	flags.StringVar(&f.ifname, "name", "sn0", "name of the netdevice to make")
	flags.StringVar(&f.daemonFlags.name, "host-name", "", "name that the I/O unit knows this host by (default: HOSTNAME.NAME)")
	flags.StringVar(&f.mac, "mac", "", "MAC address to ask for (default: one that the I/O unit derives from the key)")
	flags.IntVar(&f.maxMTU, "max-mtu", 9000, "largest MTU to accept; the netdevice follows the I/O unit's network card up to it")
	flags.IntVar(&f.queues, "queues", 1, "queues to ask for, each with a data channel of its own")
	flags.StringVar(&f.offloads, "offloads", "all", "what to leave to the I/O unit: all, none, or some of "+vnet.AllOffloads.String())
	flags.StringSliceVar(&f.modes, "mode", []string{string(protocol.ModeImm)}, "transfer modes wanted, in order of preference: some of "+strings.Join(modeNames(), ", ")+"; the I/O unit takes the first that it allows")
	flags.BoolVar(&f.plain, "plain", false, "a plain TAP device without offloads, for kernels without IFF_VNET_HDR")
	flags.IntVar(&f.txQueueLen, "txqueuelen", 512, "length of the netdevice's transmit queue in frames")
	flags.BoolVar(&f.persist, "persist", false, "the netdevice outlives this process, and the next one with this flag takes it over (a service of systemd needs no flag for that)")
	f.latency.add(flags, false, "one queue and data channel more, for latency-sensitive frames, if the I/O unit has one too")
	flags.StringVar(&f.netns, "netns", "", "network namespace for the netdevice, by name or path (default: this process's)")
	flags.BoolVar(&f.movable, "movable", false, "the netdevice may be moved to other network namespaces, as into a container: keep CAP_SYS_ADMIN, which that takes; --netns does so too")
	return c
}

// start is run with the configuration read. A netdevice that the last process
// has left keeps its carrier only if this process does not fail.
func (f *hostFlags) start(cmd *cobra.Command) error {
	var err error
	if f.origin, err = readConfig(cmd, f.config); err == nil {
		err = limit(cmd.Context(), f.privileges())
	}
	store, storeErr := openStore()
	if err = errors.Join(err, storeErr); err == nil {
		err = f.run(cmd.Context(), store)
	}
	if err != nil {
		store.forsake()
	}
	return err
}

func (f *hostFlags) run(ctx context.Context, store *fdStore) (err error) {
	log, err := f.logger()
	if err != nil {
		return err
	}
	if len(f.iounits) == 0 {
		return usageError{errors.New("--iounit is missing: the address of the I/O unit, such as --iounit 10.0.0.1")}
	}
	if f.failBack < 0 {
		return usageError{fmt.Errorf("--fail-back %v: must be above 0, or 0 for never", f.failBack)}
	}
	if f.standby && len(f.iounits) == 1 {
		return usageError{errors.New("--standby: there is one I/O unit only; name another with --iounit")}
	}
	if len(f.ifname) >= unix.IFNAMSIZ {
		return usageError{fmt.Errorf("--name %s: must have at most %d characters", f.ifname, unix.IFNAMSIZ-1)}
	}
	if f.queues < 1 || f.queues > messaging.MaxQueues {
		return usageError{fmt.Errorf("--queues %d: must be 1 to %d", f.queues, messaging.MaxQueues)}
	}
	mcfg, err := f.messaging()
	if err != nil {
		return err
	}
	classes, err := f.latency.apply(&mcfg)
	if err != nil {
		return err
	}
	if f.queues+extra(classes) > messaging.MaxQueues {
		return usageError{fmt.Errorf("--queues %d: must be 1 to %d: %w", f.queues, messaging.MaxQueues, errManyQueues)}
	}
	modes, err := parseModes("--mode", f.modes)
	if err != nil {
		return err
	}
	offloads := vnet.AllOffloads
	switch {
	case f.plain || f.offloads == "none":
		offloads = 0
	case f.offloads != "all":
		if offloads, err = vnet.ParseOffloads(f.offloads); err != nil {
			return usageError{fmt.Errorf("--offloads: %w", err)}
		}
	}
	var mac protocol.MAC
	if f.mac != "" {
		if mac, err = protocol.ParseMAC(f.mac); err != nil {
			return usageError{fmt.Errorf("--mac: %w", err)}
		}
	}
	if f.maxMTU < protocol.MinMTU || f.maxMTU > protocol.MaxMTU {
		return usageError{fmt.Errorf("--max-mtu %d: must be %d to %d", f.maxMTU, protocol.MinMTU, protocol.MaxMTU)}
	}
	if err := notDumpable(); err != nil {
		return err
	}
	security, err := f.security()
	if err != nil {
		return err
	}
	reloads := newReloader(f.origin, security, nil, log)
	defer reloads.start(ctx)()
	f.warnInsecure(log)
	device, err := f.openDevice()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	mcfg.Timing.Timeout = f.qpTimeout(device)
	noLatency := probe(classes, log)
	if noLatency != nil {
		classes = nil
	}
	queues := f.queues + extra(classes)
	if err := f.handlerFlags.apply(&mcfg, queues, device.Limits().CompVectors+extra(classes)); err != nil {
		return err
	}

	tcfg := tap.Config{Name: f.ifname, NetNS: f.netns, Queues: queues, Offloads: offloads, TxQueueLen: f.txQueueLen, Persist: f.persist}
	netdev, err := f.openNetdevice(tcfg, store, log)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = netdev.SetCarrier(false) // a netdevice that was deleted has none
		}
		err = errors.Join(err, netdev.Close())
	}()
	// What the kernel does not have cannot be asked for.
	offloads = offloads.Intersect(netdev.Offloads())

	name := f.daemonFlags.name
	if name == "" {
		name = hostname() + "." + netdev.Name()
	}
	if !session.ValidName(name) {
		return invalidName("--host-name", name)
	}
	before, err := past(netdev)
	if err != nil {
		return err
	}
	h, err := host.New(host.Config{
		Name: name, Software: version, IOUnits: f.iounits, Security: security,
		Device: device, Netdev: host.TAP(netdev), MAC: mac, MaxMTU: f.maxMTU, Offloads: offloads,
		Latency: classes, NoLatency: noLatency, FailBack: f.failBack, Standby: f.standby,
		Modes: modes, Messaging: mcfg, HandshakeTimeout: f.handshakeTimeout, Log: log,
		OnState: func(s host.State) { notify("STATUS=" + string(s)) },
		Past:    before, KeepCarrier: store.there(),
		OnAgreement: func(a host.Agreement) {
			if err := netdev.SetMemory(memory(a)); err != nil {
				log.Warn("the next process will not know what was set by hand", "reason", err)
			}
		},
	})
	if err != nil {
		return usageError{err}
	}
	stop, err := f.serveStatus("host-"+netdev.Name(), func() any { return hostView{h.Status(), reloads.status()} }, hostMetrics(h, reloads), log, append(hostCommands(h, queues), reloads.command())...)
	if err != nil {
		return err
	}
	defer stop()
	if !netdev.Taken() {
		if err := netdev.Up(); err != nil {
			return err
		}
	}
	moreProcs(2*queues + 1)
	log.Info("host", "netdevice", netdev.Name(), "adopted", before.Adopted, "device", device.Name(), "key", security.Fingerprint(), "iounits", f.iounits, "version", version)
	notify("READY=1")
	defer notify(stopping)
	return h.Run(ctx)
}

package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/irq"
	"github.com/splitnic/splitnic/internal/spin"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap/steer"
	"github.com/splitnic/splitnic/vnet"
)

// UnitStatus is the status of an I/O unit's process.
type UnitStatus struct {
	iounit.Status
	NIC      string         `json:"nic"` // the network card that is shared, as --lan has named it
	Security SecurityStatus `json:"security"`
	// Interrupts has the interrupts of the RDMA device.
	Interrupts Interrupts `json:"interrupts"`
}

// RunIOUnit runs an I/O unit until ctx is done.
func RunIOUnit(ctx context.Context, c IOUnit) error {
	if err := c.needDirectories(); err != nil {
		return err
	}
	if err := limit(ctx, c.privileges()); err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	return c.run(ctx)
}

func (c *IOUnit) run(ctx context.Context) (err error) {
	log, err := c.begin()
	if err != nil {
		return err
	}
	rules, err := loadPolicy(c.Policy)
	if err != nil {
		return err
	}
	// An error about --lan is reported before one about the key, whose path may be a default.
	card, claim, err := c.openCard()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, claim.Close()) }()
	security, err := c.Keys.load()
	if err != nil {
		return err
	}
	complainOfUnknown(log, rules, security)
	device, err := c.open(log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	vectors := device.Limits().CompVectors
	c.Queues = cmp.Or(c.Queues, DefaultQueues(vectors))
	queues := min(c.Queues+extra(c.Latency), cq.MaxQueues)
	if err = c.handlers(device, c.Queues, vectors, log); err != nil {
		return err
	}
	restore, err := c.prepareCard(log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, restore()) }()

	unit, err := c.assemble(device, card, rules, log)
	if err != nil {
		return err
	}
	return c.serveHosts(ctx, unit, security, queues, log)
}

// serveHosts serves the unit's hosts, status and metrics until ctx is done.
func (c *IOUnit) serveHosts(
	ctx context.Context, unit *iounit.Unit, security *session.Security, queues int, log *slog.Logger,
) (err error) {
	ln, err := session.Listen(c.Listen, session.ServerConfig{
		Security: security, PeerTimeout: c.Messaging.PeerTimeout, HandshakeTimeout: c.HandshakeTimeout,
		Burst: unit.Burst, Rejected: unit.Rejected,
		// All hosts may connect at once, for example after a restart of this process.
		MaxHandshakes: max(session.DefaultMaxHandshakes, c.MaxHosts),
	})
	if err != nil {
		return ExplainListen("--listen", err)
	}
	defer func() { err = errors.Join(err, ln.Close()) }()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	reloads := newReloader(c.Reread, c.ConfigFile, security, unit.SetPolicy, log)
	defer reloads.start(ctx)()
	bound := boundProcs(queues, c.MaxHosts)
	handlers := handlersCommand(func(r HandlersRequest) error { return unit.ChangeHandlers(r.Host, r.Change) }, bound)
	status := func() any {
		s := unit.Status()
		return UnitStatus{s, c.LAN, reloads.status(), interruptsOf(irq.Kernel, s.Device)}
	}
	commands := append(drainCommands(unit), reloads.command(), handlers)
	commands = append(commands, captureCommands(unit.Captures(), "I/O unit, port "+port, c.Version, log)...)
	stop, err := c.serve("iounit-"+port, nil, status, iounitMetrics(unit, reloads), log, commands...)
	if err != nil {
		return err
	}
	defer stop()
	MoreProcs(2*queues + 2)
	if c.Handlers.bound() {
		MoreProcs(bound)
	}
	log.Info("I/O unit", "listen", ln.Addr(), "lan", c.LAN, "device", c.Device, "key", security.Fingerprint(),
		"queues", c.Queues, "version", c.Version)
	notify(fmt.Sprintf("READY=1\nSTATUS=serving %s at %v", c.LAN, ln.Addr()))
	defer notify(stopping)
	return unit.Run(ctx, ln)
}

// openCard finds the network card and reserves it for this process until claim is closed, which is
// nil for a card that needs no lock.
func (c *IOUnit) openCard() (card *lan.Card, claim *cardClaim, err error) {
	if card, _, err = FindCard(c.LAN, c.NetNS); err != nil {
		return nil, nil, err
	}
	if err := c.checkCapability(); err != nil {
		return nil, nil, err
	}
	if !c.Kind.Facts().Netdevice() {
		return card, nil, nil // what a port makes, such as a socket, has one owner
	}
	claim, err = claimCard(statussock.Dir, c.NIC, c.NetNS)
	return card, claim, err
}

// FindCard looks up the network card of --lan, and returns an error if it cannot be shared.
func FindCard(spec, netns string) (card *lan.Card, info lan.Info, err error) {
	if card, err = lan.NewCard(spec, netns); err != nil {
		return nil, info, err
	}
	if info, err = card.Info(); err != nil {
		return nil, info, exit.With(exit.Missing, fmt.Errorf("--lan %s: %w", spec, err))
	}
	kind, _, err := lan.ParseSpec(spec)
	if err != nil {
		return nil, info, err
	}
	if err := info.Suits(kind); err != nil {
		status := exit.Usage
		if errors.Is(err, syscall.EBUSY) {
			status = exit.AddressInUse
		}
		return nil, info, exit.With(status, fmt.Errorf("--lan %s: %w", spec, err))
	}
	return card, info, nil
}

// checkCapability reports a missing capability at the start, although it is needed only when
// the first host connects.
func (c *IOUnit) checkCapability() error {
	needs := c.Kind.Facts().Needs
	if needs.Name == "" {
		return nil
	}
	has, err := Capabilities()
	if err != nil || has(needs.Number) {
		return nil // if the capabilities are unknown, the kernel will report it
	}
	return exit.With(exit.Permission, fmt.Errorf("--lan %s: %s is missing; run as root, or give the service "+
		"AmbientCapabilities=%s", c.LAN, needs.Name, needs.Name))
}

// prepareCard prepares the claimed card. It removes the devices that a killed I/O unit has left,
// which may have used another kind of interface.
func (c *IOUnit) prepareCard(log *slog.Logger) (restore func() error, err error) {
	if !c.Kind.Facts().Netdevice() {
		return func() error { return nil }, nil
	}
	removed, err := lan.CleanStale(c.NIC, c.NetNS)
	if err != nil {
		return nil, err
	}
	if len(removed) > 0 {
		log.Warn("removed what a killed process left", "devices", removed)
	}
	return lan.Prepare(c.NIC, c.NetNS)
}

func (c *IOUnit) assemble(
	device fabric.Device, card *lan.Card, rules *policy.Policy, log *slog.Logger,
) (*iounit.Unit, error) {
	name := cmp.Or(c.Name, Hostname())
	if err := CheckName("--name", name); err != nil {
		return nil, err
	}
	c.Messaging.SpinLimit = spin.NewLimit()
	if c.MaxMemory > 0 {
		c.Messaging.Budget = messaging.NewBudget(c.MaxMemory)
	}
	return iounit.New(iounit.Config{
		Name: name, Software: c.Version, Device: device,
		OpenLAN: func(mac net.HardwareAddr, queues int) (lan.Interface, error) {
			return card.Open(lan.Config{MAC: mac, Queues: queues, Offloads: vnet.AllOffloads, Log: log})
		},
		Latency: c.Latency,
		OpenLatencyLAN: func(mac net.HardwareAddr, rule steer.Rule) (lan.Interface, error) {
			return card.Open(lan.Config{MAC: mac, Queues: rule.Queues, Offloads: vnet.AllOffloads, Latency: &rule})
		},
		LinkState: func() (lan.LinkState, error) {
			info, err := card.Info()
			return info.LinkState, err
		},
		MaxQueues: c.Queues, MaxHosts: c.MaxHosts, Modes: c.Modes, Policy: rules, Messaging: c.Messaging, Log: log,
		Encrypt: c.Encrypt, Ciphers: c.Ciphers, KeyLog: c.KeyLog,
		Direct: c.Direct, DirectAfter: c.DirectAfter, DirectPeers: c.DirectPeers,
	})
}

package daemon

import (
	"context"
	"errors"
	"log/slog"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/irq"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/host/mirror"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/verbs"
	"github.com/splitnic/splitnic/vhostuser"
)

// HostStatus is the status of a host's process.
type HostStatus struct {
	host.Status
	// Port is of a vhost-user port, nil where the netdevice is a TAP device.
	Port     *vhostuser.Status `json:"port,omitempty"`
	Security SecurityStatus    `json:"security"`
	// Interrupts are those of the RDMA device.
	Interrupts Interrupts `json:"interrupts"`
}

// RunHost runs a host until ctx is done. A netdevice that the last process has
// left keeps its carrier only if this process does not fail, also not in reading
// its configuration.
func RunHost(ctx context.Context, read func() (Host, error)) error {
	c, err := read()
	if err == nil {
		err = limit(ctx, c.privileges())
	}
	store, storeErr := openStore()
	if err = errors.Join(err, storeErr); err == nil {
		err = c.run(ctx, store)
	}
	if err != nil {
		store.forsake()
	}
	return err
}

func (c *Host) run(ctx context.Context, store *fdStore) (err error) {
	log := c.logger()
	security, err := c.security()
	if err != nil {
		return err
	}
	reloads := newReloader(c.Reread, c.ConfigFile, security, nil, log)
	defer reloads.start(ctx)()
	device, err := c.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	noLatency := probe(c.Latency, log)
	if noLatency != nil {
		c.Latency = nil
	}
	queues := c.Queues + extra(c.Latency)
	if err = c.handlers(device, queues, device.Limits().CompVectors+extra(c.Latency), log); err != nil {
		return err
	}

	netdev, err := c.openNetdevice(queues, store, log)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = netdev.SetCarrier(false) // a netdevice that was deleted has none
		}
		err = errors.Join(err, netdev.Close())
	}()
	h, err := c.assemble(device, netdev, security, log, noLatency, store.there() && netdev.tap != nil)
	if err != nil {
		return err
	}
	return c.serveNetdevice(ctx, h, netdev, reloads, log)
}

// serveNetdevice serves the netdevice, status and metrics until ctx is done.
func (c *Host) serveNetdevice(
	ctx context.Context, h *host.Host, netdev *netdevice, reloads *reloader, log *slog.Logger,
) error {
	queues := len(netdev.Ports())
	status := func() any {
		s := h.Status()
		return HostStatus{s, netdev.portStatus(), reloads.status(), interruptsOf(irq.Kernel, s.Device)}
	}
	stop, err := c.serve("host-"+netdev.Name(), status, hostMetrics(h, reloads), log,
		append(hostCommands(h, queues), reloads.command())...)
	if err != nil {
		return err
	}
	defer stop()
	if netdev.tap != nil && !netdev.tap.Taken() {
		if err := netdev.tap.Up(); err != nil {
			return err
		}
	}
	busy := 2*queues + 1
	if c.Direct.On {
		busy += 2 * directBusy
	}
	MoreProcs(busy)
	log.Info("host", "netdevice", netdev.Name(), "vhost_user", c.Port, "adopted", netdev.history.Adopted,
		"device", c.Device, "key", reloads.security.Fingerprint(), "iounits", c.IOUnits, "version", c.Version)
	notify("READY=1")
	defer notify(stopping)
	return h.Run(ctx)
}

// directBusy is how many direct connections are reckoned with that are busy at once.
const directBusy = 2

// assemble puts the host together. noLatency is why there is no latency queue
// although one is wanted; keepCarrier is set where a service manager keeps the
// netdevice.
func (c *Host) assemble(
	device *verbs.Context, netdev *netdevice, security *session.Security, log *slog.Logger,
	noLatency error, keepCarrier bool,
) (*host.Host, error) {
	name := c.Name
	if name == "" {
		name = Hostname() + "." + netdev.Name()
	}
	if err := CheckName("--host-name", name); err != nil {
		return nil, err
	}
	h, err := host.New(host.Config{
		Name: name, Software: c.Version, IOUnits: c.IOUnits, Security: security,
		Device: device, Netdev: netdev.Netdevice, MAC: c.MAC, MaxMTU: c.MaxMTU,
		Offloads: c.Offloads.Intersect(netdev.offloads), // what the kernel does not have cannot be asked for
		Latency:  c.Latency, NoLatency: noLatency, FailBack: c.FailBack, Standby: c.Standby,
		Direct: host.Direct{
			On: c.Direct.On, Peers: c.Direct.Peers, Idle: c.Direct.Idle, Grace: c.Direct.Grace,
			Budget: messaging.NewBudget(c.Direct.Memory),
		},
		Modes: c.Modes, Messaging: c.Messaging, HandshakeTimeout: c.HandshakeTimeout, Log: log,
		OnState: func(s host.State) { notify("STATUS=" + string(s)) },
		History: netdev.history, KeepCarrier: keepCarrier,
		OnAgreement: func(a mirror.Agreement) { netdev.remember(a, log) },
	})
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	return h, nil
}

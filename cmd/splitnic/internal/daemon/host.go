package daemon

import (
	"context"
	"errors"

	"github.com/splitnic/splitnic/internal/spin"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// RunHost runs a host, a process with one card, until ctx is done. If it fails, or cannot read
// its configuration, a netdevice that the last process has left loses its carrier.
func RunHost(ctx context.Context, read func() (Host, error)) error {
	return runWithStore(ctx, func() (endpoint, error) {
		c, err := read()
		return &c, err
	})
}

func (c *Host) run(ctx context.Context, store *fdStore) (err error) {
	log, err := c.begin()
	if err != nil {
		return err
	}
	security, err := c.Keys.load()
	if err != nil {
		return err
	}
	reloads := newReloader(c.Reread, c.ConfigFile, security, nil, log)
	defer reloads.start(ctx)()
	device, err := c.open(log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	c.Messaging.SpinLimit = spin.NewLimit()
	in := surroundings{
		device: device, store: store, log: log, noLatency: c.probe(log),
		budget:  messaging.NewBudget(c.Direct.Memory),
		onState: func(s host.State) { notify("STATUS=" + string(s)) },
	}
	d, err := c.openCard(c.Netdevice, in, reloads)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close(err != nil)) }()
	if err := store.tidy(log); err != nil {
		return err
	}
	return c.serveCard(ctx, d)
}

// serveCard serves the card, its status and metrics until ctx is done.
func (c *Host) serveCard(ctx context.Context, d *card) error {
	status := func() any { return d.status() }
	stop, err := c.serve("host-"+d.name, nil, status, hostMetrics(d), d.in.log, d.commands()...)
	if err != nil {
		return err
	}
	defer stop()
	MoreProcs(d.busy())
	d.in.log.Info("host", "netdevice", d.netdev.Name(), "vhost_user", c.Port, "adopted", d.netdev.history.Adopted,
		"device", c.Device, "key", d.reloads.security.Fingerprint(), "iounits", c.IOUnits, "version", c.Version)
	notify("READY=1")
	defer notify(stopping)
	return d.host.Run(ctx)
}

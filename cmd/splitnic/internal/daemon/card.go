package daemon

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/irq"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/host/discovery"
	"github.com/splitnic/splitnic/splitdrv/host/mirror"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vhostuser"
)

// HostStatus is the status of a card. The process of a host has one card.
type HostStatus struct {
	// Card is the name of the card on this machine: that of its netdevice when it was made, or the one
	// that an agent's card was given.
	Card string `json:"card"`
	host.Status
	// Port is the status of a vhost-user port; nil if the netdevice is a TAP device.
	Port     *vhostuser.Status `json:"port,omitempty"`
	Security SecurityStatus    `json:"security"`
	// Interrupts has the interrupts of the RDMA device.
	Interrupts Interrupts `json:"interrupts"`
}

// surroundings has what a card uses of its process, and shares with the process's other cards.
type surroundings struct {
	device    fabric.Device
	store     *fdStore
	budget    *messaging.Budget // for all direct connections; nil: no limit
	noLatency error             // why there is no latency queue although one is configured
	log       *slog.Logger
	onState   func(host.State) // called with each change of the connection's state
	persevere bool             // continue after permanent errors, which concern one card only
}

// card is a netdevice and the host that has sessions for it. Together they are a network card,
// without the process around them.
type card struct {
	name    string // HostStatus.Card
	cfg     *Host
	in      surroundings
	reloads *reloader // reloads the card's keys
	netdev  *netdevice
	host    *host.Host
}

// openCard makes the netdevice, or adopts the one that the last process has left, and creates
// the host. The host does nothing before its Run is called. The queues are put into the service
// manager's store under name.
func (c *Host) openCard(name string, in surroundings, reloads *reloader) (*card, error) {
	queues := c.Queues + extra(c.Latency)
	vectors := in.device.Limits().CompVectors + extra(c.Latency)
	if err := c.handlers(in.device, queues, vectors, in.log); err != nil {
		return nil, err
	}
	netdev, err := c.openNetdevice(name, queues, in.store, in.log)
	if err != nil {
		return nil, err
	}
	d := &card{name: name, cfg: c, in: in, reloads: reloads, netdev: netdev}
	if d.host, err = d.assemble(); err == nil && netdev.tap != nil && !netdev.tap.Taken() {
		err = netdev.tap.Up()
	}
	switch {
	case err == nil:
		return d, nil
	case netdev.tap != nil && !netdev.tap.Taken():
		return nil, errors.Join(err, d.remove()) // with --persist, a closed netdevice would stay
	default:
		return nil, errors.Join(err, d.close(true))
	}
}

// assemble creates the host. If a service manager keeps the netdevice, the carrier stays on
// when the host ends.
func (d *card) assemble() (*host.Host, error) {
	c, netdev := d.cfg, d.netdev
	name := cmp.Or(c.Name, Hostname()+"."+netdev.Name())
	if err := CheckName("--host-name", name); err != nil {
		return nil, err
	}
	if c.ZeroCopy > 0 {
		c.Messaging.ZeroCopy = messaging.NewBudget(c.ZeroCopy) // shared by all sessions
	}
	var dns discovery.Settings
	if c.State != "" {
		dns.Keep = filepath.Join(c.State, "dns")
	}
	settings := c.Direct.Settings
	settings.Budget = d.in.budget
	h, err := host.New(host.Config{
		Name: name, Software: c.Version, IOUnits: c.IOUnits, Discovery: dns,
		Security: d.reloads.security,
		Device:   d.in.device, Netdev: netdev.Netdevice, MAC: c.MAC, MaxMTU: c.MaxMTU,
		Offloads: c.Offloads.Intersect(netdev.offloads), // offloads that the kernel lacks cannot be requested
		Latency:  c.Latency, NoLatency: d.in.noLatency, FailBack: c.FailBack, Standby: c.Standby,
		Persevere: d.in.persevere,
		Direct:    settings, Encrypt: c.Encrypt, Ciphers: c.Ciphers, KeyLog: c.KeyLog,
		Modes: c.Modes, Messaging: c.Messaging, HandshakeTimeout: c.HandshakeTimeout, Log: d.in.log,
		OnState: d.in.onState, History: netdev.history, KeepCarrier: d.in.store.there() && netdev.tap != nil,
		OnAgreement: func(a mirror.Agreement) { netdev.remember(a, d.in.log) },
	})
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	return h, nil
}

// close closes the netdevice, which thereby ends unless the next process gets it. If the card
// has failed, close first takes away the carrier.
func (d *card) close(failed bool) error {
	if failed {
		_ = d.netdev.SetCarrier(false) // this fails if the netdevice was deleted
	}
	return d.netdev.Close()
}

// remove removes the netdevice, and its queues from the store.
func (d *card) remove() error {
	var errs []error
	if d.in.store.there() {
		for i := range d.netdev.Ports() {
			errs = append(errs, d.in.store.removeQueue(d.name, i))
		}
	}
	if t := d.netdev.tap; t != nil {
		return errors.Join(append(errs, t.Remove())...)
	}
	return errors.Join(append(errs, d.netdev.Close())...)
}

func (d *card) status() HostStatus {
	s := d.host.Status()
	return HostStatus{d.name, s, d.netdev.portStatus(), d.reloads.status(), interruptsOf(irq.Kernel, s.Device)}
}

func (d *card) commands() []statussock.Command {
	all := append(hostCommands(d.host, len(d.netdev.Ports())), d.reloads.command())
	return append(all, captureCommands(d.host.Captures(), "host "+d.host.Status().Name, d.cfg.Version, d.in.log)...)
}

func hostCommands(h *host.Host, queues int) []statussock.Command {
	stats := func(clear bool) func(context.Context) (any, error) {
		return func(ctx context.Context) (any, error) { return h.Statistics(ctx, clear) }
	}
	return []statussock.Command{
		{Name: CommandStats, Run: stats(false)},
		{Name: CommandClearStats, Run: stats(true)},
		handlersCommand(func(r HandlersRequest) error { return h.ChangeHandlers(r.Change) }, boundProcs(queues, 1)),
		{Name: CommandFailover, RunWith: with(func(ctx context.Context, addr string) (any, error) {
			return h.Failover(ctx, addr)
		})},
		waitCommand(h.Status, h.Changed),
		{Name: CommandReset, Run: func(ctx context.Context) (any, error) { return struct{}{}, h.Reset(ctx) }},
	}
}

// busy returns the number of threads that move the card's frames under high load.
func (d *card) busy() int {
	n := 2*len(d.netdev.Ports()) + 1
	if d.cfg.Direct.On {
		n += 2 * directBusy
	}
	return n
}

// directBusy is the assumed number of direct connections that are busy at the same time.
const directBusy = 2

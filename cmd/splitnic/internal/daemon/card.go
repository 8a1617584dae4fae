package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// HostStatus is the status of a card: that of a host's process, which has one.
type HostStatus struct {
	host.Status
	// Port is of a vhost-user port, nil where the netdevice is a TAP device.
	Port     *vhostuser.Status `json:"port,omitempty"`
	Security SecurityStatus    `json:"security"`
	// Interrupts are those of the RDMA device.
	Interrupts Interrupts `json:"interrupts"`
}

// surroundings are what a card has from its process, and shares with other cards.
type surroundings struct {
	device    fabric.Device
	store     *fdStore
	budget    *messaging.Budget // of all direct connections; nil for no bound
	noLatency error             // why there is no latency queue although one is wanted
	log       *slog.Logger
	onState   func(host.State) // told of changes of the connection
	persevere bool             // what one card cannot have is no reason to end the process
}

// card is a netdevice, and the host that has sessions for it: all that a network card
// is, without the process around it.
type card struct {
	cfg     *Host
	in      surroundings
	reloads *reloader // of its keys
	netdev  *netdevice
	host    *host.Host
}

// openCard makes the netdevice, or takes over what the last process has left of it,
// and puts the host together. Nothing happens before run. The queues go to the service
// manager's store under that name.
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
	d := &card{cfg: c, in: in, reloads: reloads, netdev: netdev}
	if d.host, err = d.assemble(); err == nil && netdev.tap != nil && !netdev.tap.Taken() {
		err = netdev.tap.Up()
	}
	switch {
	case err == nil:
		return d, nil
	case netdev.tap != nil && !netdev.tap.Taken():
		return nil, errors.Join(err, d.remove(name)) // it would stay with --persist
	default:
		return nil, errors.Join(err, d.close(true))
	}
}

// assemble puts the host together. It keeps the carrier when it ends where a service
// manager keeps the netdevice.
func (d *card) assemble() (*host.Host, error) {
	c, netdev := d.cfg, d.netdev
	name := c.Name
	if name == "" {
		name = Hostname() + "." + netdev.Name()
	}
	if err := CheckName("--host-name", name); err != nil {
		return nil, err
	}
	if c.ZeroCopy > 0 {
		c.Messaging.ZeroCopy = messaging.NewBudget(c.ZeroCopy) // of all sessions
	}
	h, err := host.New(host.Config{
		Name: name, Software: c.Version, IOUnits: c.IOUnits, Discovery: discovery.Settings{Keep: c.keepDNS()},
		Security: d.reloads.security,
		Device:   d.in.device, Netdev: netdev.Netdevice, MAC: c.MAC, MaxMTU: c.MaxMTU,
		Offloads: c.Offloads.Intersect(netdev.offloads), // what the kernel does not have cannot be asked for
		Latency:  c.Latency, NoLatency: d.in.noLatency, FailBack: c.FailBack, Standby: c.Standby,
		Persevere: d.in.persevere,
		Direct: host.Direct{
			On: c.Direct.On, Peers: c.Direct.Peers, Idle: c.Direct.Idle, Grace: c.Direct.Grace, Budget: d.in.budget,
		},
		Modes: c.Modes, Messaging: c.Messaging, HandshakeTimeout: c.HandshakeTimeout, Log: d.in.log,
		OnState: d.in.onState, History: netdev.history, KeepCarrier: d.in.store.there() && netdev.tap != nil,
		OnAgreement: func(a mirror.Agreement) { netdev.remember(a, d.in.log) },
	})
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	return h, nil
}

// keepDNS is where what DNS has said is kept.
func (c *Host) keepDNS() string {
	if c.State == "" {
		return ""
	}
	return filepath.Join(c.State, "dns")
}

// close closes the netdevice, which goes unless the next process gets it. After a
// failure it has no carrier.
func (d *card) close(failed bool) error {
	if failed {
		_ = d.netdev.SetCarrier(false) // a netdevice that was deleted has none
	}
	return d.netdev.Close()
}

// remove removes the netdevice, also from the store.
func (d *card) remove(name string) error {
	var errs []error
	if d.in.store.there() {
		for i := range d.netdev.Ports() {
			errs = append(errs, d.in.store.removeQueue(name, i))
		}
	}
	if t := d.netdev.tap; t != nil {
		return errors.Join(append(errs, t.Remove())...)
	}
	return errors.Join(append(errs, d.netdev.Close())...)
}

// status is what `splitnic status` shows.
func (d *card) status() HostStatus {
	s := d.host.Status()
	return HostStatus{s, d.netdev.portStatus(), d.reloads.status(), interruptsOf(irq.Kernel, s.Device)}
}

// commands are what the card does on request.
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
		{Name: CommandFailover, RunWith: func(ctx context.Context, argument json.RawMessage) (any, error) {
			var addr string
			if err := json.Unmarshal(argument, &addr); err != nil {
				return nil, fmt.Errorf("which I/O unit: %w", err)
			}
			return h.Failover(ctx, addr)
		}},
		waitCommand(h.Status, h.Changed),
		{Name: CommandReset, Run: func(ctx context.Context) (any, error) { return struct{}{}, h.Reset(ctx) }},
	}
}

// busy is how many threads move the frames of the card when there is much to do.
func (d *card) busy() int {
	n := 2*len(d.netdev.Ports()) + 1
	if d.cfg.Direct.On {
		n += 2 * directBusy
	}
	return n
}

// directBusy is how many direct connections are reckoned with that are busy at once.
const directBusy = 2

package daemon

import (
	"log/slog"

	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/host/mirror"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vhostuser"
	"github.com/splitnic/splitnic/vnet"
)

// netdevice is the netdevice of a host: a TAP device, or a virtio-net device for another program
// (a vhost-user port).
type netdevice struct {
	host.Netdevice
	tap      *tap.Device       // nil for a vhost-user port
	port     *vhostuser.Device // nil for a TAP device
	offloads vnet.Offloads     // which the netdevice supports
	history  host.History
}

// openNetdevice makes the netdevice, or adopts a TAP device that the last process has left in
// the store under name.
func (c *Host) openNetdevice(name string, queues int, store *fdStore, log *slog.Logger) (*netdevice, error) {
	if c.Port != (vhostuser.Address{}) {
		d, err := vhostuser.Open(vhostuser.Config{Address: c.Port, Pairs: queues, Offloads: c.Offloads, Log: log})
		if err != nil {
			return nil, err
		}
		return &netdevice{Netdevice: host.VhostUser(c.Netdevice, d), port: d, offloads: c.Offloads}, nil
	}
	d, err := c.openTAP(name, queues, store, log)
	if err != nil {
		return nil, err
	}
	before, err := history(d)
	if err != nil {
		return nil, closed(d, err)
	}
	return &netdevice{Netdevice: host.TAP(d), tap: d, offloads: d.Offloads(), history: before}, nil
}

// Close removes the netdevice, unless another process has it too.
func (n *netdevice) Close() error {
	if n.port != nil {
		return n.port.Close()
	}
	return n.tap.Close()
}

// remember stores an agreement for the next process. Only a TAP device can be handed over to
// a next process.
func (n *netdevice) remember(a mirror.Agreement, log *slog.Logger) {
	if n.tap == nil {
		return
	}
	if err := n.tap.SetMemory(memory(a)); err != nil {
		log.Warn("the next process will not know what was set by hand", "error", err)
	}
}

// portStatus returns the status of a vhost-user port, or nil for a TAP device.
func (n *netdevice) portStatus() *vhostuser.Status {
	if n.port == nil {
		return nil
	}
	s := n.port.Status()
	return &s
}

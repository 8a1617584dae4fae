package daemon

import (
	"log/slog"
	"net"

	"github.com/splitnic/splitnic/protocol"
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

// openTAP makes the TAP device, or adopts the one that the last process of this service has left
// in the service manager's store under name. It puts the queues into the store for the next
// process.
func (c *Host) openTAP(name string, queues int, store *fdStore, log *slog.Logger) (*tap.Device, error) {
	cfg := tap.Config{
		Name: c.Netdevice, NetNS: c.NetNS, Queues: queues, Plain: c.Plain, Offloads: c.Offloads, TxQueueLen: c.TxQueueLen,
		Persist: c.Persist,
	}
	var d *tap.Device
	left := store.takeQueues(name)
	if len(left) > 0 {
		var err error
		if d, err = tap.Adopt(cfg, left); err != nil {
			log.Warn("the last process's netdevice is of no use; a new one is made", "name", name, "error", err)
		}
	}
	kept := 0
	if d != nil {
		kept = min(len(left), len(d.Queues()))
	}
	for i := kept; i < len(left); i++ {
		if err := store.removeQueue(name, i); err != nil {
			return nil, closed(d, err)
		}
	}
	if d == nil {
		var err error
		if d, err = tap.Open(cfg); err != nil {
			return nil, err
		}
	}
	keep(store, name, d, kept, log)
	return d, nil
}

// closed closes d, which may be nil, and returns err.
func closed(d *tap.Device, err error) error {
	if d != nil {
		d.Close()
	}
	return err
}

// keep puts the queues from index first on into the service manager's store. If that fails, the
// netdevice still works, but ends with this process.
func keep(store *fdStore, name string, d *tap.Device, first int, log *slog.Logger) {
	if !store.there() {
		return
	}
	if room, short := store.short(len(d.Queues()) - first); short {
		log.Warn("the netdevice ends with this process; FileDescriptorStoreMax= of the service is smaller than the number "+
			"of its netdevices' queues", "store", room, "queues", len(d.Queues()))
	}
	for i := first; i < len(d.Queues()); i++ {
		if err := store.putQueue(name, i, d.Queues()[i].FD()); err != nil {
			log.Warn("the netdevice ends with this process", "error", err)
			return
		}
	}
}

// history returns what earlier processes have done with the netdevice.
func history(d *tap.Device) (host.History, error) {
	label := d.Label()
	p := host.History{Since: label.Since, Adopted: label.Adopted}
	if !d.Taken() {
		return p, nil
	}
	var err error
	if p.Carrier, err = d.Carrier(); err != nil {
		return host.History{}, err
	}
	if m := label.Memory; m.MTU != 0 {
		p.Agreement = &mirror.Agreement{
			MAC: macOf(m.MAC), MTU: m.MTU, Granted: m.Granted, WantMAC: macOf(m.WantMAC), WantMTU: m.WantMTU,
		}
	}
	return p, nil
}

// memory returns an agreement in the form in which it is stored for the next process.
func memory(a mirror.Agreement) tap.Memory {
	m := tap.Memory{MTU: a.MTU, Granted: a.Granted, WantMTU: a.WantMTU}
	if a.MAC.Valid() {
		m.MAC = net.HardwareAddr(a.MAC[:])
	}
	if a.WantMAC.Valid() {
		m.WantMAC = net.HardwareAddr(a.WantMAC[:])
	}
	return m
}

// macOf converts a MAC address. It returns the zero address if there is none.
func macOf(a net.HardwareAddr) protocol.MAC {
	if len(a) != len(protocol.MAC{}) {
		return protocol.MAC{}
	}
	return protocol.MAC(a)
}

package hosts

import (
	"context"
	"net"
	"sync"

	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/scripts/measure/testbed"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/tap/discard"
	"github.com/splitnic/splitnic/vnet"
)

// steady is the state of a card whose ports cost nothing.
var steady = lan.LinkState{Up: true, MTU: 1500, Speed: 10000}

// device is what a port and a netdevice that cost nothing have in common.
type device struct {
	*testbed.Null
	mu  sync.Mutex
	mac net.HardwareAddr
}

func newDevice(mac net.HardwareAddr) (*device, error) {
	q, err := testbed.NewNull()
	return &device{Null: q, mac: mac}, err
}

func (d *device) MAC() net.HardwareAddr {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mac
}

func (d *device) SetMAC(mac net.HardwareAddr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mac = mac
	return nil
}

func (d *device) Name() string                                       { return "none" }
func (d *device) SetOffloads(o vnet.Offloads) (vnet.Offloads, error) { return o, nil }
func (d *device) EarlyDiscard() discard.Status                       { return discard.Status{} }
func (d *device) SetPromisc(bool) error                              { return nil }
func (d *device) SetAllMulti(bool) error                             { return nil }

// port is a port that costs nothing.
type port struct{ *device }

var _ lan.Interface = port{}

func (p port) Queues() []lan.Queue                   { return []lan.Queue{p.Null} }
func (p port) State() (lan.LinkState, error)         { return steady, nil }
func (p port) Offloads() vnet.Offloads               { return vnet.AllOffloads }
func (p port) Floods() bool                          { return false }
func (p port) SetUp(bool) error                      { return nil }
func (p port) SetMulticast([]net.HardwareAddr) error { return nil }
func (p port) SetUnicast([]net.HardwareAddr) error   { return nil }
func (p port) Announce([]byte) error                 { return nil }
func (p port) Stats() lan.Stats                      { return lan.Stats{} }
func (p port) Watch(ctx context.Context, fn func(lan.LinkState)) error {
	fn(steady)
	<-ctx.Done()
	return nil
}

// netdev is a host's netdevice that costs nothing.
type netdev struct{ *device }

var _ host.Netdevice = netdev{}

func (d netdev) Ports() []messaging.Port       { return []messaging.Port{d.Null} }
func (d netdev) SetActive(int) error           { return nil }
func (d netdev) SetCarrier(bool) error         { return nil }
func (d netdev) Solicit(context.Context) error { return nil }
func (d netdev) SetMTU(int) error              { return nil }
func (d netdev) SetSpeed(int) error            { return nil }
func (d netdev) State() (tap.State, error) {
	return tap.State{Up: true, MTU: 1500, MAC: d.MAC()}, nil
}

func (d netdev) Watch(ctx context.Context, fn func(tap.State)) error {
	s, _ := d.State()
	fn(s)
	<-ctx.Done()
	return nil
}

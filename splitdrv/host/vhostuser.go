package host

import (
	"context"
	"net"
	"slices"
	"sync"

	"github.com/splitnic/splitnic/internal/wake"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/tap/discard"
	"github.com/splitnic/splitnic/vhostuser"
	"github.com/splitnic/splitnic/vnet"
)

// VhostUser returns a virtio-net device as a Netdevice with a name. The device remains the
// caller's. A front end does not report its address, groups and VLANs, so the host requests
// all multicast frames and all VLANs from the I/O unit.
func VhostUser(name string, d *vhostuser.Device) Netdevice {
	return &vhostDevice{d: d, name: name, mtu: defaultMTU, changed: make(chan struct{}, 1)}
}

// defaultMTU is the MTU of a device before SetMTU is called.
const defaultMTU = 1500

type vhostDevice struct {
	d       *vhostuser.Device
	name    string
	changed chan struct{} // signaled by SetMAC and SetMTU; capacity one

	mu  sync.Mutex
	mac net.HardwareAddr
	mtu int
}

func (v *vhostDevice) Name() string { return v.name }

func (v *vhostDevice) Ports() []messaging.Port {
	ports := make([]messaging.Port, 0, len(v.d.Queues()))
	for _, q := range v.d.Queues() {
		ports = append(ports, q)
	}
	return ports
}

func (v *vhostDevice) SetActive(n int) error { return v.d.SetActive(n) }

// SetCarrier does nothing: a front end assumes that the link is up while it is connected,
// and does not work without a link.
func (v *vhostDevice) SetCarrier(bool) error { return nil }

func (v *vhostDevice) EarlyDiscard() discard.Status {
	return discard.Status{Reason: "a vhost-user port has no queue of the kernel's"}
}

func (v *vhostDevice) SetSpeed(int) error { return nil }

func (v *vhostDevice) Solicit(context.Context) error { return nil }

func (v *vhostDevice) SetMAC(mac net.HardwareAddr) error {
	v.set(func() { v.mac = slices.Clone(mac) })
	return nil
}

func (v *vhostDevice) SetMTU(mtu int) error {
	v.set(func() { v.mtu = mtu })
	return nil
}

func (v *vhostDevice) set(fn func()) {
	v.mu.Lock()
	fn()
	v.mu.Unlock()
	wake.Up(v.changed)
}

// SetOffloads sets the offloads of both directions. Other offloads that the front end has
// negotiated are done in software.
func (v *vhostDevice) SetOffloads(o vnet.Offloads) (vnet.Offloads, error) {
	v.d.SetOffloads(o)
	return o, nil
}

func (v *vhostDevice) State() (tap.State, error) {
	up, _ := v.d.Up()
	v.mu.Lock()
	defer v.mu.Unlock()
	return tap.State{
		Up: up, MAC: slices.Clone(v.mac), MTU: v.mtu,
		AllMulti: true, Trunk: true, // the front end does not report what it needs
	}, nil
}

func (v *vhostDevice) Watch(ctx context.Context, fn func(tap.State)) error {
	for {
		_, changed := v.d.Up()
		state, err := v.State()
		if err != nil {
			return err
		}
		fn(state)
		select {
		case <-changed:
		case <-v.changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// SetPromisc does nothing: the front end owns the setting.
func (v *vhostDevice) SetPromisc(bool) error { return nil }

// SetAllMulti does nothing, like SetPromisc.
func (v *vhostDevice) SetAllMulti(bool) error { return nil }

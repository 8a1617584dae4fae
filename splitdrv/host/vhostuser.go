package host

import (
	"context"
	"net"
	"slices"
	"sync"

	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/tap/discard"
	"github.com/splitnic/splitnic/vhostuser"
	"github.com/splitnic/splitnic/vnet"
)

// VhostUser makes a Netdevice of that name of a virtio-net device, which stays the
// caller's. What a front end wants of a network card it does not tell: its address, its
// groups and its VLANs are taken for any that the I/O unit lets the host have.
func VhostUser(name string, d *vhostuser.Device) Netdevice {
	return &vhostDevice{d: d, name: name, mtu: defaultMTU, changed: make(chan struct{}, 1)}
}

// defaultMTU is what a device has before anybody has set one.
const defaultMTU = 1500

type vhostDevice struct {
	d       *vhostuser.Device
	name    string
	changed chan struct{} // of capacity one: by SetMAC or SetMTU

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

// SetCarrier has nobody to tell: a front end takes the link to be up as long as it is
// connected, and does not get on without it.
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
	signal(v.changed)
}

// SetOffloads is about frames in both directions. What the front end has negotiated
// besides is done in software.
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
		AllMulti: true, Trunk: true, // nobody tells
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

// SetPromisc has nothing to change: the setting is the front end's.
func (v *vhostDevice) SetPromisc(bool) error { return nil }

// SetAllMulti has nothing to change either.
func (v *vhostDevice) SetAllMulti(bool) error { return nil }

package host

import (
	"context"
	"errors"
	"net"

	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/tap/discard"
	"github.com/splitnic/splitnic/tap/steer"
	"github.com/splitnic/splitnic/vnet"
)

// Netdevice is the device that the host provides to its operating system. Its methods are
// called by one goroutine at a time, except Watch and Solicit.
type Netdevice interface {
	Name() string
	// Ports returns the device's queues. Each data channel uses one of them.
	Ports() []messaging.Port
	// SetActive makes the kernel use only the first n queues.
	SetActive(n int) error
	SetCarrier(up bool) error
	// EarlyDiscard returns whether the kernel drops whole datagrams before a queue is full,
	// instead of any packet afterwards.
	EarlyDiscard() discard.Status
	// SetSpeed sets the speed in Mbit/s that the device shows; 0: unknown.
	SetSpeed(mbit int) error
	// Solicit makes the operating system resolve its pending neighbours again, after the
	// carrier is back. It returns when that is done, or when ctx is done.
	Solicit(ctx context.Context) error
	SetMAC(mac net.HardwareAddr) error
	SetMTU(mtu int) error
	// SetOffloads lets the operating system leave the offloads o to the I/O unit, and returns
	// those that it will use.
	SetOffloads(o vnet.Offloads) (vnet.Offloads, error)

	// State returns the settings of the device.
	State() (tap.State, error)
	// Watch calls fn whenever the state may have changed. It returns nil when ctx is done,
	// and an error when the device is deleted.
	Watch(ctx context.Context, fn func(tap.State)) error
	// SetPromisc and SetAllMulti change the device's own settings, like an administrator.
	SetPromisc(on bool) error
	SetAllMulti(on bool) error
}

// Steerer is a Netdevice that can steer latency-sensitive frames to the last of the queues
// in use: see tap.Device.
type Steerer interface {
	Steer(*steer.Rule) error
}

// ErrNetdeviceGone is wrapped by the error of Run when the netdevice was deleted. A new
// process creates a new one.
var ErrNetdeviceGone = errors.New("the netdevice was deleted; restart the process to make a new one")

// TAP returns a TAP device as a Netdevice, which is also a Steerer. The device remains the
// caller's.
func TAP(d *tap.Device) Netdevice { return tapDevice{d} }

type tapDevice struct{ *tap.Device }

var _ Steerer = tapDevice{}

func (d tapDevice) Ports() []messaging.Port {
	ports := make([]messaging.Port, 0, len(d.Queues()))
	for _, q := range d.Queues() {
		ports = append(ports, q)
	}
	return ports
}

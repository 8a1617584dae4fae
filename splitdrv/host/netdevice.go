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

// Netdevice is the device that the host gives to its operating system. Its
// methods are called by one goroutine at a time, Watch and Solicit apart.
type Netdevice interface {
	Name() string
	// Ports are the device's queues, one for each data channel at most.
	Ports() []messaging.Port
	// SetActive uses the first n queues only; the kernel puts frames nowhere
	// else.
	SetActive(n int) error
	SetCarrier(up bool) error
	// EarlyDiscard says whether the kernel drops whole datagrams before a queue is
	// full, or what comes when it is.
	EarlyDiscard() discard.Status
	// SetSpeed has the device show a speed in Mbit/s; 0: not known.
	SetSpeed(mbit int) error
	// Solicit, after the carrier has come back, has the operating system ask the
	// LAN again for the neighbours that it waits for. It returns when that is
	// done, or ctx is.
	Solicit(ctx context.Context) error
	SetMAC(mac net.HardwareAddr) error
	SetMTU(mtu int) error
	// SetOffloads lets the operating system leave so much to the I/O unit and
	// returns what it will really use.
	SetOffloads(o vnet.Offloads) (vnet.Offloads, error)

	// State reads what the operating system wants of the device.
	State() (tap.State, error)
	// Watch calls fn when the state may have changed, until ctx is done, when
	// it returns nil, or the device is gone.
	Watch(ctx context.Context, fn func(tap.State)) error
	// SetPromisc and SetAllMulti change the device's own settings, as an
	// administrator does.
	SetPromisc(on bool) error
	SetAllMulti(on bool) error
}

// Steerer is a Netdevice that can put latency-sensitive frames into the last of
// the queues in use: see tap.Device.
type Steerer interface {
	Steer(*steer.Rule) error
}

// ErrNetdeviceGone is wrapped by Run's error when somebody has deleted the
// netdevice. A new process makes a new one.
var ErrNetdeviceGone = errors.New("the netdevice was deleted; restart the process to make a new one")

// TAP makes a Netdevice, and a Steerer, of a TAP device, which stays the
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

//go:build !cgo

package verbs

import (
	"context"
	"errors"
	"fmt"

	"github.com/splitnic/splitnic/fabric"
)

// errNoCgo is the cause of every error of a build without cgo.
var errNoCgo = fmt.Errorf("%w: %w", fabric.ErrUnsupported,
	errors.New("built without cgo, which libibverbs needs: install libibverbs-dev and build with CGO_ENABLED=1"))

// Devices lists the RDMA devices of the machine. In a build without cgo it fails.
func Devices() ([]DeviceInfo, error) {
	return nil, &OpError{Op: "list RDMA devices", Err: errNoCgo}
}

// Context is an open RDMA device. Without cgo no device can be opened.
type Context struct{}

var _ fabric.Device = (*Context)(nil)

// Open opens the RDMA device with the given name. In a build without cgo it fails.
func Open(name string, _ ...Option) (*Context, error) {
	return nil, &OpError{Op: "open device", Device: name, Err: errNoCgo}
}

// Name implements fabric.Device.
func (*Context) Name() string { return "" }

// Driver returns the kernel driver of the device.
func (*Context) Driver() string { return "" }

// Limits implements fabric.Device.
func (*Context) Limits() fabric.Limits { return fabric.Limits{} }

// Attr returns the attributes of the device.
func (*Context) Attr() DeviceAttr { return DeviceAttr{} }

// Port queries a port.
func (*Context) Port(int) (PortAttr, error) { return PortAttr{}, errNoCgo }

// PortNumber returns the number of the port of the queue pairs.
func (*Context) PortNumber() int { return 0 }

// PortMTU returns the active MTU of the port of the queue pairs.
func (*Context) PortMTU() (int, error) { return 0, errNoCgo }

// Ports queries all ports.
func (*Context) Ports() ([]PortAttr, error) { return nil, errNoCgo }

// QueryGIDTable reads the valid entries of the GID tables.
func (*Context) QueryGIDTable() ([]GIDEntry, error) { return nil, errNoCgo }

// ChooseGID returns the GID that the queue pairs of the next domain will use, and the reason
// for the choice.
func (*Context) ChooseGID() (GIDEntry, string, error) { return GIDEntry{}, "", errNoCgo }

// PKeys reads the partition key table of a port.
func (*Context) PKeys(int) ([]uint16, error) { return nil, errNoCgo }

// ChoosePKey returns the index of the partition key of the queue pairs of the next domain.
func (*Context) ChoosePKey() (int, error) { return 0, errNoCgo }

// ReadEvent consumes one asynchronous event.
func (*Context) ReadEvent() (fabric.Event, bool, error) { return fabric.Event{}, false, errNoCgo }

// WaitEvent waits for one asynchronous event.
func (*Context) WaitEvent(context.Context) (fabric.Event, error) { return fabric.Event{}, errNoCgo }

// NewDomain implements fabric.Device.
func (*Context) NewDomain() (fabric.Domain, error) { return nil, errNoCgo }

// Close implements fabric.Device.
func (*Context) Close() error { return nil }

//go:build !cgo

package verbs

import (
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

// Context is an open RDMA device. Without cgo no device can be opened, so that none of the methods is
// ever called.
type Context struct{ device }

var _ fabric.Device = (*Context)(nil)

// device has the methods of a Context that other packages use.
type device interface {
	fabric.Device
	fabric.EventSource
	Driver() string
	Attr() DeviceAttr
	Port(int) (PortAttr, error)
	PortNumber() int
	PortMTU() (int, error)
	Ports() ([]PortAttr, error)
	ChooseGID() (GIDEntry, string, error)
	ChoosePKey() (int, error)
}

// Open opens the RDMA device with the given name. In a build without cgo it fails.
func Open(name string, _ ...Option) (*Context, error) {
	return nil, &OpError{Op: "open device", Device: name, Err: errNoCgo}
}

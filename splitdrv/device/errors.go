package device

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
)

// ErrGone is wrapped by the errors of sessions that end because their device has gone away, and
// by those of a device that is not back yet.
var ErrGone = errors.New("the RDMA device is gone")

// EventError is the error of a session that ends because of an asynchronous event.
type EventError struct {
	Device string
	Event  fabric.Event
}

func (e *EventError) Error() string { return fmt.Sprintf("device %s: %v", e.Device, e.Event) }

// Is reports whether target is ErrGone and the event means that.
func (e *EventError) Is(target error) bool {
	return target == ErrGone && e.Event.Type == fabric.EventDeviceFatal
}

// goneError is the error of an operation that a device refused because it is gone.
type goneError struct {
	device string
	cause  error // nil: the device is not back yet
}

func (e *goneError) Error() string {
	if e.cause == nil {
		return fmt.Sprintf("device %s: %v; it is opened again when it is back", e.device, ErrGone)
	}
	return fmt.Sprintf("device %s: %v: %v", e.device, ErrGone, e.cause)
}

func (e *goneError) Unwrap() []error { return []error{ErrGone, e.cause} }

// saysGone reports whether err is that of a device that is gone. Its driver answers EIO, or ENODEV,
// to everything.
func saysGone(err error) bool { return errors.Is(err, unix.EIO) || errors.Is(err, unix.ENODEV) }

func isClosed(err error) bool { return errors.Is(err, net.ErrClosed) }

package device

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// ErrTransport is wrapped by the errors of Lacks, Late and Carries.
var ErrTransport = errors.New("the device cannot carry a transfer mode")

// Carries returns an error if a device cannot carry a transfer mode.
func Carries(dev fabric.Device, m protocol.Mode) error {
	switch {
	case m.Lossy():
		return Lacks(dev, fabric.UC)
	case m.Indicated():
		return Late(dev, "mode "+string(m), "use another mode")
	default:
		return nil
	}
}

// Lacks returns an error if a device has no queue pairs of a transport. It creates one: no limit of
// a device says so. Some drivers refuse what they do not have as an invalid argument. That counts
// if they take a queue pair of the other transport. A device that cannot say now, because its port
// has no address for example, is not said to lack anything.
func Lacks(dev fabric.Device, tr fabric.Transport) error {
	what, other := "reliable connections (RC), on which sessions run: use another device", fabric.UC
	if tr == fabric.UC {
		what, other = "unreliable connections (UC), on which mode send-uc runs: use another mode", fabric.RC
	}
	err := create(dev, tr)
	switch {
	case errors.Is(err, fabric.ErrUnsupported):
	case errors.Is(err, syscall.EINVAL) && create(dev, other) == nil:
	default:
		return nil
	}
	return &transportError{fmt.Sprintf("device %s has no %s", dev.Name(), what), err}
}

// Late returns an error if the data of writes can be missing on a device when a message on another
// queue pair says that they have completed. That is known of a device that tries it, as a Device
// does. The error says what relies on it, and what to do instead.
func Late(dev fabric.Device, what, instead string) error {
	d, ok := dev.(interface{ Late() string })
	if !ok {
		return nil
	}
	why := d.Late()
	if why == "" {
		return nil
	}
	return &transportError{fmt.Sprintf("device %s makes the data of completed writes visible late, and %s relies on "+
		"them: %s", dev.Name(), what, instead), errors.New(why)}
}

// transportError is the error of Lacks and Late. It says what to do instead of what the driver has said.
type transportError struct {
	text  string
	cause error
}

func (e *transportError) Error() string { return e.text }

// Unwrap returns ErrTransport and the error of the device.
func (e *transportError) Unwrap() []error { return []error{ErrTransport, e.cause} }

// create creates a queue pair, and closes it.
func create(dev fabric.Device, tr fabric.Transport) (err error) {
	d, err := dev.NewDomain()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	cq, err := d.NewCQ(4, 0)
	if err != nil {
		return err
	}
	_, err = d.NewQP(fabric.QPConfig{Transport: tr, SendCQ: cq, RecvCQ: cq, MaxSend: 1, MaxRecv: 1})
	return err
}

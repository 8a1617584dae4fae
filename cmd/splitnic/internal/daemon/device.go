package daemon

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/verbs"
)

// Adapter is what the queue pairs are made on.
type Adapter struct {
	Device   string // may be empty if there is only one
	Port     int    // of the device, from 1 on; 0 for the first
	GIDIndex int    // -1 for the default
	PKey     uint16 // 0 for the first of the port's table
}

// Open opens the RDMA device.
func (a *Adapter) Open() (*verbs.Context, error) {
	devices, err := verbs.Devices()
	if err != nil {
		return nil, exit.With(exit.Missing, err)
	}
	names := make([]string, len(devices))
	for i, dev := range devices {
		names[i] = dev.Name
	}
	name, err := ChooseDevice(a.Device, names)
	if err != nil {
		return nil, err
	}
	options := []verbs.Option{verbs.WithPort(max(a.Port, 1)), verbs.WithPKey(a.PKey)}
	if a.GIDIndex >= 0 {
		options = append(options, verbs.WithGIDIndex(a.GIDIndex))
	}
	dev, err := verbs.Open(name, options...)
	if err != nil {
		if errors.Is(err, unix.EINVAL) {
			err = exit.With(exit.Missing, fmt.Errorf("--ib-port %d: %w", a.Port, err))
		}
		return nil, err
	}
	// No session would ever come about.
	if a.GIDIndex >= 0 {
		if _, _, err := dev.ChooseGID(); err != nil {
			return nil, exit.With(exit.Missing, errors.Join(fmt.Errorf("--gid-index %d: %w", a.GIDIndex, err), dev.Close()))
		}
	}
	if _, err := dev.ChoosePKey(); err != nil {
		return nil, exit.With(exit.Missing, errors.Join(fmt.Errorf("--pkey %#04x: %w", a.PKey, err), dev.Close()))
	}
	return dev, nil
}

// ChooseDevice returns which of the RDMA devices that there are is wanted: the
// one of that name, or the only one if that is empty.
func ChooseDevice(wanted string, names []string) (string, error) {
	missing := func(format string, args ...any) (string, error) {
		return "", exit.With(exit.Missing, fmt.Errorf(format, args...))
	}
	switch {
	case len(names) == 0:
		return missing("this machine has no RDMA device; load the adapter's driver, or for Soft-RoCE: " +
			"modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0 (`splitnic doctor` tells more)")
	case wanted == "" && len(names) == 1:
		return names[0], nil
	case wanted == "":
		return "", exit.Usagef("which RDMA device? choose with --device: %s", strings.Join(names, ", "))
	case !slices.Contains(names, wanted):
		return missing("--device %s: there is no such RDMA device; there are: %s", wanted, strings.Join(names, ", "))
	}
	return wanted, nil
}

// softRoCETimeout is the default --qp-timeout on Soft-RoCE, 1.07 s. Its timer
// is not stopped when all is acknowledged, but goes off during a later message
// and sends that again; the longer it is, the rarer. What is really lost is
// found when the next packet arrives, without the timer.
const softRoCETimeout = 18

// QPTimeout is the queue-pair timeout to use on the device when that is wanted;
// 0 is the default, which is package fabric's on most devices.
func QPTimeout(dev *verbs.Context, wanted uint8) uint8 {
	if wanted == 0 && dev.Driver() == "rdma_rxe" {
		return softRoCETimeout
	}
	return wanted
}

// DefaultQueues is how many data channels an endpoint uses by default: one
// for each completion vector, as long as its two threads find a processor.
func DefaultQueues(vectors int) int {
	return max(1, min(vectors, runtime.NumCPU()/4, messaging.MaxQueues))
}

// MoreProcs gives the Go scheduler a P for each of n threads that move frames
// on top of those for the rest: a thread that wakes while every P is taken
// waits for milliseconds. There are never fewer than before.
func MoreProcs(n int) {
	if n += runtime.NumCPU(); n > runtime.GOMAXPROCS(0) {
		runtime.GOMAXPROCS(n)
	}
}

// Capabilities returns a function that reports whether this process has a
// capability.
func Capabilities() (has func(bit uint) bool, err error) {
	var hdr unix.CapUserHeader
	var data [2]unix.CapUserData
	hdr.Version = unix.LINUX_CAPABILITY_VERSION_3
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return nil, err
	}
	return func(bit uint) bool { return data[bit/32].Effective&(1<<(bit%32)) != 0 }, nil
}

package daemon

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/verbs"
)

// Adapter specifies the RDMA device, port, GID and P_Key of the queue pairs.
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
	name, err := ChooseDevice(a.Device, DeviceNames(devices))
	if err != nil {
		return nil, err
	}
	options := []verbs.Option{verbs.WithPort(max(a.Port, 1)), verbs.WithPKey(a.PKey)}
	if a.GIDIndex >= 0 {
		options = append(options, verbs.WithGIDIndex(a.GIDIndex))
	}
	dev, err := verbs.Open(name, options...)
	switch {
	case errors.Is(err, fabric.ErrUnsupported): // not an adapter for sessions
		return nil, exit.With(exit.Missing, err)
	case errors.Is(err, unix.EINVAL):
		return nil, exit.With(exit.Missing, fmt.Errorf("--ib-port %d: %w", a.Port, err))
	case err != nil:
		return nil, err
	}
	// Without a GID or a P_Key, every session would fail.
	if a.GIDIndex >= 0 {
		if _, _, err := dev.ChooseGID(); err != nil {
			return nil, exit.With(exit.Missing, errors.Join(fmt.Errorf("--gid-index %d: %w", a.GIDIndex, err), dev.Close()))
		}
	}
	if _, err := dev.ChoosePKey(); err != nil {
		return nil, exit.With(exit.Missing, errors.Join(fmt.Errorf("partition key %#04x: %w", a.PKey, err), dev.Close()))
	}
	return dev, nil
}

// DeviceNames returns the names of devices.
func DeviceNames(devices []verbs.DeviceInfo) (names []string) {
	for _, d := range devices {
		names = append(names, d.Name)
	}
	return names
}

// ChooseDevice chooses one of the RDMA devices in names: the one called wanted, or the only one
// if wanted is empty.
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

// softRoCETimeout is the default advanced.qp-timeout on Soft-RoCE, 1.07 s. Soft-RoCE does not stop its
// retransmission timer when everything is acknowledged. The timer expires during a later
// message, which is then sent again; a longer timeout makes this rarer. Lost packets are
// detected without the timer, when the next packet arrives.
const softRoCETimeout = 18

// QPTimeout returns the queue-pair timeout to use on a device with this driver. If wanted is 0, this is the
// default of the device; a result of 0 means the default of package fabric.
func QPTimeout(driver string, wanted uint8) uint8 {
	if wanted == 0 && driver == "rdma_rxe" {
		return softRoCETimeout
	}
	return wanted
}

// DefaultQueues returns the default number of data channels of an endpoint: one for each
// completion vector, as far as there are processors for the two threads of each channel.
func DefaultQueues(vectors int) int {
	return max(1, min(vectors, runtime.NumCPU()/4, cq.MaxQueues))
}

// MoreProcs gives the Go scheduler a P for each of n threads that move frames, in addition to
// one P for each processor. A thread that wakes up while all Ps are in use waits for
// milliseconds. MoreProcs never reduces the number of Ps.
func MoreProcs(n int) {
	if n += runtime.NumCPU(); n > runtime.GOMAXPROCS(0) {
		runtime.GOMAXPROCS(n)
	}
}

package verbs

import (
	"fmt"

	"github.com/splitnic/splitnic/fabric"
)

// transport is what the queue pairs of a device speak, with the values of enum
// ibv_transport_type.
type transport int32

const (
	transportInfiniBand  transport = iota // also RoCE
	transportIWARP                        // Internet Wide Area RDMA Protocol
	transportUSNIC                        // Cisco's, without RDMA
	transportUSNICUDP                     // the same over UDP
	transportUnspecified                  // such as Amazon's EFA
)

// suitable returns an error if the queue pairs of a device with this transport cannot have
// sessions, which need reliable connections without a connection manager, and writes with
// immediate data.
func suitable(device string, t transport) error {
	var why string
	switch t {
	case transportInfiniBand:
		return nil
	case transportIWARP:
		why = "iWARP has no writes with immediate data, and connects by rdma_cm only"
	case transportUSNIC, transportUSNICUDP:
		why = "usNIC has no RDMA"
	case transportUnspecified:
		why = "its protocol is its own, as that of EFA, without reliable connections"
	default:
		why = fmt.Sprintf("its transport %d is unknown", t)
	}
	return &OpError{Op: "open device", Device: device, Err: fmt.Errorf("%w: %s", fabric.ErrUnsupported, why),
		Hint: "use an InfiniBand or RoCE adapter, its RoCE mode if it has one, or Soft-RoCE"}
}

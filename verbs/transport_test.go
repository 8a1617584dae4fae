//go:build cgo

package verbs

import (
	"errors"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/fabric"
)

// TestTransport expects that only devices of InfiniBand and RoCE are accepted, and that the
// refusal of another one names the device and the reason.
func TestTransport(t *testing.T) {
	if err := suitable("mlx5_0", transportInfiniBand); err != nil {
		t.Error(err)
	}
	for kind, word := range map[transport]string{
		transportIWARP: "iWARP", transportUSNIC: "usNIC", transportUSNICUDP: "usNIC", transportUnspecified: "EFA",
		-1: "unknown", 5: "unknown",
	} {
		err := suitable("x0", kind)
		var op *OpError
		if !errors.Is(err, fabric.ErrUnsupported) || !errors.As(err, &op) || op.Device != "x0" || op.Hint == "" ||
			!strings.Contains(err.Error(), word) {
			t.Errorf("transport %d: %v", kind, err)
		}
	}
}

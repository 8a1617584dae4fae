package device_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/splitdrv/device"
)

// TestLacks tries to create queue pairs of a transport on devices that refuse it for one reason or
// another.
func TestLacks(t *testing.T) {
	for _, c := range []struct {
		name          string
		noRC, noUC    error
		lacks, lacks2 bool // RC, UC
	}{
		{"both", nil, nil, false, false},
		{"no UC", nil, fabric.ErrUnsupported, false, true},
		{"no UC, called invalid", nil, unix.EINVAL, false, true},
		{"no RC", fabric.ErrUnsupported, nil, true, false},
		{"neither", fabric.ErrUnsupported, fabric.ErrUnsupported, true, true},
		{"nothing now", unix.EINVAL, unix.EINVAL, false, false}, // no address of the port, for example
		{"no memory", unix.ENOMEM, unix.ENOMEM, false, false},
	} {
		n := fabrictest.New(fabrictest.WithAdapter(fabrictest.Adapter{NoRC: c.noRC, NoUC: c.noUC}))
		fabrictest.NoLeaks(t, n)
		dev := n.Device("a")
		for tr, want := range map[fabric.Transport]bool{fabric.RC: c.lacks, fabric.UC: c.lacks2} {
			err := device.Lacks(dev, tr)
			if errors.Is(err, device.ErrTransport) != want || (err != nil) != want {
				t.Errorf("%s, transport %d: %v", c.name, tr, err)
			}
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
}

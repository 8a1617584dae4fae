package host

import (
	"errors"
	"log/slog"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/device"
)

// TestCarried expects an error about the modes that were asked for and that the device cannot carry.
func TestCarried(t *testing.T) {
	imm, both := []protocol.Mode{protocol.ModeImm}, []protocol.Mode{protocol.ModeSendUC, protocol.ModeImm}
	for _, c := range []struct {
		name string
		fabrictest.Adapter
		modes []protocol.Mode
		fails bool
	}{
		{"all there is", fabrictest.Adapter{}, both, false},
		{"no UC", fabrictest.Adapter{NoUC: fabric.ErrUnsupported}, imm, false},
		{"no UC, and asked for", fabrictest.Adapter{NoUC: unix.EINVAL}, both, true},
		{"late data", fabrictest.Adapter{LateWrites: true}, both, false},
		{"late data, and asked for", fabrictest.Adapter{LateWrites: true}, []protocol.Mode{protocol.ModeIndicate}, true},
		{"no RC", fabrictest.Adapter{NoRC: fabric.ErrUnsupported}, imm, true},
	} {
		n := fabrictest.New(fabrictest.WithAdapter(c.Adapter))
		dev, err := device.Open(device.Config{
			Open: func() (fabric.Device, error) { return n.Open("a") }, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		err = (&Config{Device: dev, Modes: c.modes}).carried()
		if errors.Is(err, device.ErrTransport) != c.fails || (err != nil) != c.fails {
			t.Errorf("%s: %v", c.name, err)
		}
		if err != nil {
			testenv.Explained(t, "host: "+err.Error())
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
}

package messaging_test

import (
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// recordingDevice records the access rights with which memory is registered.
type recordingDevice struct {
	fabric.Device
	seen *[]fabric.Access
}

func (d recordingDevice) NewDomain() (fabric.Domain, error) {
	dom, err := d.Device.NewDomain()
	return recordingDomain{dom, d.seen}, err
}

type recordingDomain struct {
	fabric.Domain
	seen *[]fabric.Access
}

func (d recordingDomain) Register(mem []byte, a fabric.Access) (fabric.Region, error) {
	*d.seen = append(*d.seen, a)
	return d.Domain.Register(mem, a)
}

// TestRelaxedOrdering checks that only pools without windows are registered with relaxed
// ordering, and that StrictOrdering disables it.
func TestRelaxedOrdering(t *testing.T) {
	for _, c := range []struct {
		mode       protocol.Mode
		protection messaging.Protection
		strict     bool
		relaxed    int // number of relaxed pools
	}{
		{protocol.ModeImm, messaging.ProtectRegion, false, 2},
		{protocol.ModeImm, messaging.ProtectRegion, true, 0},
		{protocol.ModeIndicate, messaging.ProtectRegion, false, 0},
		{protocol.ModeImm, messaging.ProtectWindow, false, 0},
		{protocol.ModeImm, messaging.ProtectOneTouch, false, 0},
		{protocol.ModeSend, "", false, 1},
		{protocol.ModeSend, "", true, 0},
	} {
		n := fabrictest.New()
		dev := n.Device("a")
		var seen []fabric.Access
		conn, err := messaging.New(messaging.Config{Device: recordingDevice{dev, &seen}, Mode: c.mode,
			Protection: c.protection, OneTouch: true, StrictOrdering: c.strict})
		if err != nil {
			t.Fatal(err)
		}
		relaxed := 0
		for _, a := range seen {
			if a&fabric.Relaxed == 0 {
				continue
			}
			relaxed++
			if want := fabric.LocalWrite; a&want == 0 || a&fabric.WindowBind != 0 {
				t.Errorf("%s %s: relaxed memory has rights %b", c.mode, c.protection, a)
			}
		}
		if relaxed != c.relaxed {
			t.Errorf("%s %s, strict %v: %d relaxed regions of %d, must be %d", c.mode, c.protection, c.strict, relaxed,
				len(seen), c.relaxed)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
}

package daemon

import (
	"log/slog"
	"testing"

	"github.com/splitnic/splitnic/cmd/internal/cards"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/splitdrv/device"
)

// TestCardHasItsDevice expects that a card of an agent gets the device that is listened to, and
// nothing around it that hides what sessions ask of it: its state, windows, driver and events.
func TestCardHasItsDevice(t *testing.T) {
	log, n := slog.New(slog.DiscardHandler), fabrictest.New()
	fabrictest.NoLeaks(t, n)
	opened, err := device.Open(device.Config{Open: func() (fabric.Device, error) { return n.Open("a") }, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	c := Agent{Host: Host{IOUnits: []string{"unit"}}}
	a := newAgent(&c, nil, log, func(string) (fabric.Device, uint8, error) { return opened, 18, nil })
	t.Cleanup(func() {
		if err := a.close(); err != nil {
			t.Error(err)
		}
	})
	host, in, err := a.plan(&cards.Spec{Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	if in.device != fabric.Device(opened) || device.StatusOf(in.device) == nil || host.Messaging.Timing.Timeout != 18 {
		t.Errorf("the card has a %T with timeout %d", in.device, host.Messaging.Timing.Timeout)
	}
}

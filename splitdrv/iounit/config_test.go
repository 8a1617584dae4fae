package iounit

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// TestDirectAnswer checks the default of Config.DirectAnswer: a longer peer time-out gives hosts
// more time for the steps of a direct connection.
func TestDirectAnswer(t *testing.T) {
	for _, c := range []struct{ peerTimeout, given, want time.Duration }{
		{0, 0, 2 * time.Second},
		{100 * time.Millisecond, 0, 2 * time.Second},
		{10 * time.Second, 0, 20 * time.Second},
		{10 * time.Second, time.Hour, time.Hour},
	} {
		dev := fabrictest.New().Device("unit")
		cfg, err := Config{
			Device:    dev,
			OpenLAN:   func(net.HardwareAddr, int) (lan.Interface, error) { return nil, errors.ErrUnsupported },
			LinkState: func() (lan.LinkState, error) { return lan.LinkState{}, errors.ErrUnsupported },
			Messaging: messaging.Config{PeerTimeout: c.peerTimeout}, DirectAnswer: c.given,
		}.complete()
		if err != nil || cfg.DirectAnswer != c.want {
			t.Errorf("%v with a peer time-out of %v: %v, %v", c.given, c.peerTimeout, cfg.DirectAnswer, err)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
}

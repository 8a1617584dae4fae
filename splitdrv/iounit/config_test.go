package iounit

import (
	"errors"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/device"
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

// TestCarried makes I/O units on devices that lack a transport. Of the default modes those that the
// device cannot carry are left out; a list that has them fails.
func TestCarried(t *testing.T) {
	all := protocol.Modes()
	noUC, noRC := fabrictest.Adapter{NoUC: unix.EINVAL}, fabrictest.Adapter{NoRC: fabric.ErrUnsupported}
	late := fabrictest.Adapter{LateWrites: true}
	for _, c := range []struct {
		name string
		fabrictest.Adapter
		modes, want []protocol.Mode // want is nil if New fails
		without     bool
	}{
		{"all there is", fabrictest.Adapter{}, nil, all, false},
		{"no UC", noUC, nil, all[:3], true},
		{"no UC, and all modes named", noUC, all, all[:3], true},
		{"no UC, and not asked for", noUC, all[:2], all[:2], false},
		{"no UC, and asked for", noUC, all[2:], nil, false},
		{"late data", late, nil, []protocol.Mode{all[0], all[2], all[3]}, true},
		{"late data, and asked for", late, all[:2], nil, false},
		{"no RC", noRC, nil, nil, false},
	} {
		n := fabrictest.New(fabrictest.WithAdapter(c.Adapter))
		dev, err := device.Open(device.Config{
			Open: func() (fabric.Device, error) { return n.Open("unit") }, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		u, err := New(Config{
			Device: dev, Modes: c.modes, Log: slog.New(slog.DiscardHandler),
			OpenLAN:   func(net.HardwareAddr, int) (lan.Interface, error) { return nil, errors.ErrUnsupported },
			LinkState: func() (lan.LinkState, error) { return lan.LinkState{}, errors.ErrUnsupported },
		})
		switch {
		case err != nil:
			if c.want != nil || !errors.Is(err, device.ErrTransport) {
				t.Errorf("%s: %v", c.name, err)
			}
			testenv.Explained(t, err.Error())
		case c.want == nil:
			t.Errorf("%s: it begins", c.name)
		default:
			if s := u.Status(); !slices.Equal(s.Modes, c.want) || (s.Without != "") != c.without {
				t.Errorf("%s: offers %v, %q", c.name, s.Modes, s.Without)
			}
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
	if len(all) != 4 || all[3] != protocol.ModeSendUC {
		t.Errorf("the modes are %v", all)
	}
}

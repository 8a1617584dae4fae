package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/cmd/internal/cards"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/device"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/tap"
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
	cfg, in, err := a.plan(&cards.Spec{Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	if in.device != fabric.Device(opened) || device.StatusOf(in.device) == nil || cfg.Messaging.Timing.Timeout != 18 {
		t.Errorf("the card has a %T with timeout %d", in.device, cfg.Messaging.Timing.Timeout)
	}
}

// namedDevice is a netdevice of which only the name is known.
type namedDevice struct {
	host.Netdevice
	name string
}

func (d namedDevice) Name() string { return d.name }

// TestNetdeviceOfAnotherCard expects the error about a netdevice that another card of the agent has
// to name that card, by whatever path of the network namespace, and that of others to stay.
func TestNetdeviceOfAnotherCard(t *testing.T) {
	a := newAgent(&Agent{}, nil, slog.New(slog.DiscardHandler), nil)
	own := &card{name: "web", cfg: &Host{}, netdev: &netdevice{Netdevice: namedDevice{name: "eth0"}}}
	a.there["web"] = &agentCard{card: own}
	taken := fmt.Errorf("opening: %w: another process has it", tap.ErrExists)
	for _, c := range []struct {
		spec cards.Spec
		mine bool
	}{
		{cards.Spec{Name: "b", Netdevice: "eth0"}, true},
		{cards.Spec{Name: "b", Netdevice: "eth0", NetNS: "/proc/self/ns/net"}, true},
		{cards.Spec{Name: "b", Netdevice: "eth1"}, false},
		{cards.Spec{Name: "b", Netdevice: "eth0", NetNS: "/proc/version"}, false},
	} {
		err := a.blame(&c.spec, taken)
		var field *cards.FieldError
		if !errors.As(err, &field) || field.Field != "netdevice" || strings.Contains(err.Error(), "card web") != c.mine ||
			strings.Contains(err.Error(), "another process") == c.mine {
			t.Errorf("%+v: %v", c.spec, err)
		}
		if c.mine {
			testenv.Explained(t, "card add: "+err.Error())
		}
	}
}

// TestOwnKey expects a card with a key of its own not to have the agent's certificate, which is for
// another key.
func TestOwnKey(t *testing.T) {
	a := &agent{keyDir: "/keys"}
	for _, c := range []struct {
		spec      cards.Spec
		key, cert string
	}{
		{cards.Spec{Name: "sn0"}, "agent.pem", "agent.crt"},
		{cards.Spec{Name: "sn0", NewKey: true}, "/keys/sn0.pem", ""},
		{cards.Spec{Name: "sn0", Key: "card.pem"}, "card.pem", ""},
		{cards.Spec{Name: "sn0", Key: "card.pem", Cert: "card.crt"}, "card.pem", "card.crt"},
	} {
		k := Keys{Key: "agent.pem", Cert: "agent.crt"}
		if a.own(&k, &c.spec); k.Key != c.key || k.Cert != c.cert {
			t.Errorf("%+v: key %q, certificate %q; want %q and %q", c.spec, k.Key, k.Cert, c.key, c.cert)
		}
	}
}

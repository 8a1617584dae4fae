package iounit

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/device"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/tap/steer"
)

// Config is the configuration of an I/O unit.
type Config struct {
	Name     string // name of this I/O unit, for the hosts' logs and status
	Software string // version, for display
	Device   fabric.Device
	// OpenLAN opens a host's LAN interface on the network card.
	OpenLAN func(mac net.HardwareAddr, queues int) (lan.Interface, error)
	// Latency, which may be nil, determines which frames from the LAN are latency-sensitive.
	// Hosts that request a latency channel then get one, in addition to the channels that
	// MaxQueues and the policy allow. OpenLatencyLAN opens the interface with the queues of
	// the rule, the last of which gets those frames. If the kernel cannot do that, its error
	// wraps steer.ErrUnavailable, and the host gets an interface from OpenLAN.
	Latency        *steer.Classes
	OpenLatencyLAN func(mac net.HardwareAddr, rule steer.Rule) (lan.Interface, error)
	// LinkState reads the state of the network card. No host may have the card's own address.
	LinkState func() (lan.LinkState, error)
	MaxQueues int // most data channels of a host; default 1
	MaxHosts  int // most sessions at a time; default 64
	// Modes are the transfer modes. All of them, the default, means all that the device can
	// carry; any others it must be able to carry.
	Modes  []protocol.Mode
	Policy *policy.Policy // permissions of each host; default policy.Default()
	// Messaging is the template for each session. The I/O unit sets Device, Mode, Queues,
	// MTU, PeerPools, AskLast, LatencyQueue, LatencyPools, Invalidation, OneTouch, KeySend,
	// OnHears, OnRequest and Pace, and MaxMemory if the policy limits it.
	Messaging messaging.Config
	// Encrypt says whether sessions are encrypted, where the policy does not say it for the host;
	// default seal.Allowed. Ciphers are those to use, in order of preference; default seal.Ciphers.
	Encrypt seal.Wish
	Ciphers []seal.Cipher
	// Direct permits direct connections between hosts: between two hosts that exchange
	// DirectAfter packets in a second, or any packet if that is 0.
	Direct      bool
	DirectAfter int
	DirectPeers int // most direct connections of a host; default 64
	// DirectGrace is the time for both hosts of an existing direct connection to connect;
	// default 2 s. DirectAnswer is the time for each step of a host; default twice
	// Messaging.PeerTimeout, at least 2 s.
	DirectGrace, DirectAnswer time.Duration
	// DirectRest is the shortest pause before the next offer after an end that a host has
	// caused; default 1 s.
	DirectRest time.Duration
	KeyLog     *seal.KeyLog // gets the secrets of encrypted sessions; may be nil
	Log        *slog.Logger
}

// complete returns the configuration with its defaults, or an error if it is invalid.
func (c Config) complete() (Config, error) {
	c.MaxQueues = cmp.Or(c.MaxQueues, 1)
	c.MaxHosts = cmp.Or(c.MaxHosts, 64)
	c.DirectPeers = cmp.Or(c.DirectPeers, 64)
	c.DirectGrace = cmp.Or(c.DirectGrace, 2*time.Second)
	c.DirectRest = cmp.Or(c.DirectRest, time.Second)
	c.DirectAnswer = cmp.Or(c.DirectAnswer, max(2*time.Second, 2*c.Messaging.PeerTimeout))
	c.Encrypt = cmp.Or(c.Encrypt, seal.Allowed)
	if c.Ciphers == nil {
		c.Ciphers = seal.Ciphers()
	}
	if c.Modes == nil {
		c.Modes = protocol.Modes()
	}
	if c.Policy == nil {
		c.Policy = policy.Default()
	}
	if c.OpenLAN == nil || c.LinkState == nil || c.Device == nil {
		return c, errors.New("iounit: a device and a network card are required")
	}
	if c.Latency != nil {
		if c.OpenLatencyLAN == nil {
			return c, errors.New("iounit: a latency queue needs OpenLatencyLAN")
		}
		if err := c.Latency.Check(); err != nil {
			return c, fmt.Errorf("iounit: %w", err)
		}
	}
	return c, nil
}

// carried removes the modes that the device cannot carry from those of an I/O unit that offers all,
// and returns the reasons. It fails if such a mode was asked for.
func (c *Config) carried() (without string, err error) {
	var carried []protocol.Mode
	var reasons []string
	for _, m := range c.Modes {
		lacks := device.Carries(c.Device, m)
		switch {
		case lacks == nil:
			carried = append(carried, m)
			continue
		case len(c.Modes) < len(protocol.Modes()):
			return "", fmt.Errorf("mode %s: %w", m, lacks)
		}
		c.Log.Info("a transfer mode is not offered", "mode", m, "reason", lacks)
		reasons = append(reasons, fmt.Sprintf("no %s: %v", m, lacks))
	}
	c.Modes = carried
	return strings.Join(reasons, "; "), nil
}

package iounit

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/tap/steer"
)

// Config describes an I/O unit.
type Config struct {
	Name     string // of this I/O unit, for the hosts' logs and status
	Software string // version, for people
	Device   fabric.Device
	// OpenLAN opens a host's interface on the network card.
	OpenLAN func(mac net.HardwareAddr, queues int) (lan.Interface, error)
	// Latency, which may be nil, says which frames from the LAN are
	// latency-sensitive: hosts that want a latency channel get one then, besides
	// those that MaxQueues and the policy allow. OpenLatencyLAN opens the
	// interface with the queues of the rule, the last of which gets those frames;
	// when the kernel cannot do it, its error wraps steer.ErrUnavailable and the
	// host gets an interface by OpenLAN.
	Latency        *steer.Classes
	OpenLatencyLAN func(mac net.HardwareAddr, rule steer.Rule) (lan.Interface, error)
	// LinkState reads the state of the network card, whose own address no host may have.
	LinkState func() (lan.LinkState, error)
	MaxQueues int             // data channels for each host at most; default 1
	MaxHosts  int             // sessions at a time; default 64
	Modes     []protocol.Mode // transfer modes; default all
	Policy    *policy.Policy  // what each host may do; default policy.Default()
	// Messaging is the template for each session. Device, Mode, Queues, MTU,
	// PeerPools, AskLast, LatencyQueue, LatencyPools, Invalidation, OneTouch, KeySend, OnHears, OnRequest and
	// Pace are set here, and MaxMemory where the policy bounds it.
	Messaging messaging.Config
	// Direct is on where hosts may have direct connections with each other: those two
	// each that exchange DirectAfter packets in a second, or any if that is 0.
	Direct      bool
	DirectAfter int
	DirectPeers int // of a host at a time; default 64
	// DirectGrace is for both hosts to come that had one before; default 2 s. DirectAnswer
	// is for each step that a host has to take; default twice Messaging.PeerTimeout, 2 s
	// at least.
	DirectGrace, DirectAnswer time.Duration
	Log                       *slog.Logger
}

// complete is the configuration with its defaults.
func (c Config) complete() (Config, error) {
	if c.MaxQueues == 0 {
		c.MaxQueues = 1
	}
	if c.MaxHosts == 0 {
		c.MaxHosts = 64
	}
	if c.DirectPeers == 0 {
		c.DirectPeers = 64
	}
	c.DirectGrace = cmp.Or(c.DirectGrace, 2*time.Second)
	c.DirectAnswer = cmp.Or(c.DirectAnswer, max(2*time.Second, 2*c.Messaging.PeerTimeout))
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

package lan

import (
	"fmt"

	"github.com/splitnic/splitnic/tap/steer"
)

// Card is a network card, a bridge, or a switch in user space. The ports that it opens share what
// they can: on a netdevice, their netlink sockets and one watch of it. A Card without ports keeps
// nothing open, and need not be closed.
type Card struct {
	at   site
	spec string
}

// NewCard returns a Card for ports as in spec, on a card in network namespace ns. The card
// need not exist before its first use.
func NewCard(spec, ns string) (*Card, error) {
	_, _, at, err := parse(spec, ns)
	if err != nil {
		return nil, err
	}
	return &Card{at, spec}, nil
}

// Info looks up the card. If there is no such network card or bridge, the error lists the existing
// ones.
func (c *Card) Info() (Info, error) { return c.at.Info() }

// Open makes a host's port as in spec. A card that is administratively down is set up. Use a
// Card for several ports on one card: this costs less.
func Open(spec string, cfg Config) (Interface, error) {
	c, err := NewCard(spec, cfg.NetNS)
	if err != nil {
		return nil, err
	}
	return c.Open(cfg)
}

// Open makes a host's port, in the card's network namespace. A card that is
// administratively down is set up.
func (c *Card) Open(cfg Config) (Interface, error) {
	err := cfg.complete()
	var port Interface
	if err == nil {
		port, err = c.at.open(cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("opening LAN interface %s: %w", c.spec, err)
	}
	return port, nil
}

// maxQueues is the largest number of queues of one host: MAX_TAP_QUEUES of the kernel, and
// PACKET_FANOUT_MAX of its first versions.
const maxQueues = 256

// complete checks the configuration and sets what is missing.
func (cfg *Config) complete() (err error) {
	if cfg.Queues == 0 {
		cfg.Queues = 1
	}
	if cfg.Queues < 0 || cfg.Queues > maxQueues {
		return fmt.Errorf("%d queues: between 1 and %d are possible", cfg.Queues, maxQueues)
	}
	if cfg.Latency, err = cfg.steering(); err != nil {
		return err
	}
	if cfg.MAC == nil {
		cfg.MAC = randomMAC()
	}
	return checkMAC(cfg.MAC)
}

// steering returns the rule for latency-sensitive frames of a port with this configuration,
// or nil if there is none.
func (cfg *Config) steering() (*steer.Rule, error) {
	if cfg.Latency == nil {
		return nil, nil
	}
	r := *cfg.Latency
	r.Queues = cfg.Queues
	return &r, r.Check()
}

// Suits returns an error if no interface of this kind can be on the card. It can be called
// before the first one is opened. The error wraps unix.EBUSY if the card is part of another
// device.
func (i *Info) Suits(k Kind) error {
	row := k.row()
	if row.Netdevice() && i.Encap != "ether" {
		return fmt.Errorf("%s is no Ethernet device (its kind is %s), and no LAN can be on it; name a network card", i.Name,
			i.Encap)
	}
	if row.suits == nil {
		return nil
	}
	return row.suits(i)
}

package lan

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/vnet"
)

// ParseSpec splits a specification such as "macvtap:eth1" into the back-end and the network
// card, bridge or directory of a switch. The default back-end is macvtap.
func ParseSpec(spec string) (Kind, string, error) {
	kind, nic, ok := strings.Cut(spec, ":")
	if !ok {
		kind, nic = string(Macvtap), spec
	}
	switch k := Kind(kind); k {
	case Macvtap, Packet, TAP:
		if nic == "" {
			if k == TAP {
				return "", "", fmt.Errorf("LAN interface %q names no bridge; use for example tap:br0", spec)
			}
			return "", "", fmt.Errorf("LAN interface %q names no network card; use for example %s:eth1", spec, kind)
		}
		return k, nic, nil
	case VhostUser:
		if _, err := parseSwitch(nic); err != nil {
			return "", "", fmt.Errorf("LAN interface %q: %w", spec, err)
		}
		return k, nic, nil
	}
	return "", "", fmt.Errorf("LAN interface %q: unknown kind %q; "+
		"use macvtap:NIC, packet:NIC, tap:BRIDGE or vhost-user:DIRECTORY", spec, kind)
}

// Card is a network card, a bridge, or a switch in user space. The ports that it opens share
// their netlink sockets and one watch of the card. A Card without ports keeps nothing open, and
// need not be closed.
type Card struct {
	kind    Kind
	nic, ns string
	spec    string

	userSwitch *userSwitch // nil: a netdevice of the kernel

	mu  sync.Mutex
	now *shared // may be nil, or closed because it has no users any more
}

// NewCard returns a Card for ports as in spec, on a card in network namespace ns. The card
// need not exist before its first use.
func NewCard(spec, ns string) (*Card, error) {
	kind, nic, err := ParseSpec(spec)
	if err != nil {
		return nil, err
	}
	c := &Card{kind: kind, nic: nic, ns: ns, spec: spec}
	if kind == VhostUser {
		c.userSwitch, err = parseSwitch(nic)
	}
	return c, err
}

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
	port, err := c.port(cfg)
	if err != nil {
		return nil, fmt.Errorf("opening LAN interface %s: %w", c.spec, err)
	}
	return port, nil
}

func (c *Card) port(cfg Config) (Interface, error) {
	cfg.NetNS = c.ns
	if cfg.Queues == 0 {
		cfg.Queues = 1
	}
	if cfg.Queues < 0 || cfg.Queues > maxQueues {
		return nil, fmt.Errorf("%d queues: between 1 and %d are possible", cfg.Queues, maxQueues)
	}
	rule, err := cfg.steering()
	if err != nil {
		return nil, err
	}
	cfg.Latency = rule
	if cfg.MAC == nil {
		cfg.MAC = randomMAC()
	}
	if err := checkMAC(cfg.MAC); err != nil {
		return nil, err
	}
	if c.userSwitch != nil {
		return c.userSwitch.open(cfg)
	}
	s, link, err := c.open()
	if err != nil {
		return nil, err
	}
	on := &card{shared: s, mac: cfg.MAC}
	switch c.kind {
	case Packet:
		return openPacket(on, link, cfg)
	case TAP:
		return openTAP(on, link, cfg)
	default:
		return openMacvtap(on, link, cfg)
	}
}

// maxQueues is the largest number of queues of one host: MAX_TAP_QUEUES of the kernel, and
// PACKET_FANOUT_MAX of its first versions.
const maxQueues = 256

// use looks up the card and returns the shared state of its ports. The caller is a user of
// this state until it calls release. A card that was removed and made again with the same
// name is a different card.
func (c *Card) use() (*shared, netlink.Link, error) {
	c.mu.Lock()
	s := c.now
	c.mu.Unlock()
	if s != nil && s.hold() {
		link, err := s.looks.LinkByName(c.nic)
		if err == nil && link.Attrs().Index == s.index {
			return s, link, nil
		}
		s.release()
	}
	s, link, err := findShared(c.nic, c.ns)
	if err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Another goroutine may have set c.now in the meantime.
	if o := c.now; o != nil && o.index == s.index && o.hold() {
		s.release()
		return o, link, nil
	}
	c.now = s
	return s, link, nil
}

// Info looks up the card. If there is no such card, the error lists the existing ones.
func (c *Card) Info() (Info, error) {
	if c.userSwitch != nil {
		return c.userSwitch.info()
	}
	s, link, err := c.use()
	if err != nil {
		return Info{}, err
	}
	defer s.release()
	info := Info{
		Name: c.nic, Index: s.index, Type: link.Type(), LinkState: s.stateOf(link),
		Encap: link.Attrs().EncapType, SetUp: link.Attrs().RawFlags&unix.IFF_UP != 0,
	}
	if up := link.Attrs().MasterIndex; up != 0 {
		if master, err := s.looks.LinkByIndex(up); err == nil { // it may be gone by now
			info.Master, info.MasterType = master.Attrs().Name, master.Type()
		}
	}
	return info, nil
}

// open is like use, and sets the card administratively up.
func (c *Card) open() (*shared, netlink.Link, error) {
	s, link, err := c.use()
	if err != nil || link.Attrs().RawFlags&unix.IFF_UP != 0 {
		return s, link, err
	}
	if err := s.handle.LinkSetUp(link); err != nil {
		s.release()
		if errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("%w (needs CAP_NET_ADMIN)", err)
		}
		return nil, nil, fmt.Errorf("setting network card %s up: %w", c.nic, err)
	}
	return s, link, nil
}

// LinkInfo looks up a network card in a network namespace. If there is no such card, the
// error lists the existing ones.
func LinkInfo(nic, ns string) (Info, error) {
	return (&Card{nic: nic, ns: ns}).Info()
}

// Prepare prepares a network card for ports. It sets the card up, and limits the super-frames
// that the card merges to the size that fits vnet.MaxFrame. restore sets the previous limits
// again; not calling it does no harm.
func Prepare(nic, ns string) (restore func() error, err error) {
	c, link, err := (&Card{nic: nic, ns: ns}).open()
	if err != nil {
		return nil, err
	}
	defer c.release()
	old := groOf(link)
	if err := old.reduce(vnet.GSOMaxSize).set(c.handle, link, old); err != nil {
		return nil, fmt.Errorf("limiting %s: %w", nic, err)
	}
	return func() error {
		h, err := netns.Handle(ns)
		if err != nil {
			return err
		}
		defer h.Close()
		err = old.set(h, link, old.reduce(vnet.GSOMaxSize))
		if err != nil && !errors.Is(err, unix.ENODEV) { // the card is gone
			return fmt.Errorf("restoring %s: %w", nic, err)
		}
		return nil
	}, nil
}

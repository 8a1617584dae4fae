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

// ParseSpec splits a specification such as "macvtap:eth1" into its back-end
// and the network card, bridge or directory of a switch. Without a back-end it is a
// macvtap.
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

// Card is a network card, a bridge, or a switch in user space, on which ports are opened that share what
// looks after it. It keeps nothing open itself: without ports there is nothing to
// close.
type Card struct {
	kind    Kind
	nic, ns string
	spec    string

	userSwitch *userSwitch // nil: it is one of the kernel's

	mu  sync.Mutex
	now *shared // nil, or without a user any more, before the next use
}

// NewCard is for the ports that spec says, on a card in network namespace ns. It
// need not be there before it is used.
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

// Open makes a host's port as spec says. A card that is administratively down is
// set up. Several ports on one card cost less by a Card.
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

// maxQueues bounds the queues of one host: MAX_TAP_QUEUES of the kernel, and
// PACKET_FANOUT_MAX of its first versions.
const maxQueues = 256

// use makes the caller a user of what the ports share, and looks up the card. One
// that was removed and made again is another card of the same name.
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
	// Somebody else may have been as fast.
	if o := c.now; o != nil && o.index == s.index && o.hold() {
		s.release()
		return o, link, nil
	}
	c.now = s
	return s, link, nil
}

// Info looks up the card. If it is missing, the error lists those that are there.
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

// open is use for a card that is about to be used for more, and is set up for
// that.
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

// LinkInfo looks up a network card in a network namespace. If it is missing,
// the error lists those that are there.
func LinkInfo(nic, ns string) (Info, error) {
	return (&Card{nic: nic, ns: ns}).Info()
}

// Prepare readies a network card for ports: it sets it up and bounds the
// super-frames it merges to what fits vnet.MaxFrame. restore undoes the
// latter; nothing bad happens if it is never called.
func Prepare(nic, ns string) (restore func() error, err error) {
	c, link, err := (&Card{nic: nic, ns: ns}).open()
	if err != nil {
		return nil, err
	}
	defer c.release()
	old := int(link.Attrs().GROMaxSize)
	if old <= vnet.GSOMaxSize {
		return func() error { return nil }, nil // small enough, or a kernel without the knob
	}
	if err := c.handle.LinkSetGROMaxSize(link, vnet.GSOMaxSize); err != nil {
		return nil, fmt.Errorf("setting gro_max_size of %s to %d: %w", nic, vnet.GSOMaxSize, err)
	}
	return func() error {
		h, err := netns.Handle(ns)
		if err != nil {
			return err
		}
		defer h.Close()
		if err := h.LinkSetGROMaxSize(link, old); err != nil && !errors.Is(err, unix.ENODEV) { // the card is gone
			return fmt.Errorf("setting gro_max_size of %s back to %d: %w", nic, old, err)
		}
		return nil
	}, nil
}

package lan

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/vnet"
)

// card is what all kinds of ports have in common.
type card struct {
	*shared // used until the port is closed

	mu       sync.Mutex
	closed   bool
	mac      net.HardwareAddr
	offloads vnet.Offloads
}

// Info is what can be known of a network card without opening anything.
type Info struct {
	Name  string
	Index int
	Type  string // veth, bridge, device, ...
	// Master is the bridge or bond that it is a part of, and MasterType which of
	// them; both are empty if it is not.
	Master, MasterType string
	// Encap is what kind of frames it has: "ether", "loopback", "infiniband", ...
	Encap string
	SetUp bool // administratively up, perhaps without carrier
	LinkState
}

// Suits says what is wrong with the card for interfaces of that kind, before the
// first of them is wanted. The error wraps unix.EBUSY if the card is taken.
func (i *Info) Suits(kind Kind) error {
	switch {
	case i.Encap != "ether":
		return fmt.Errorf("%s is no Ethernet device (its kind is %s), and no LAN can be on it; name a network card", i.Name,
			i.Encap)
	case kind == TAP && i.Type != "bridge":
		return notBridge(i.Name, i.Type)
	case kind == Macvtap && i.MasterType == "bridge":
		return fmt.Errorf("%s is part of bridge %s, and no macvtap can be on it: %w; use tap:%s", i.Name, i.Master,
			unix.EBUSY, i.Master)
	case kind == Macvtap && (i.MasterType == "bond" || i.MasterType == "team"):
		return fmt.Errorf("%s is part of %s %s, and no macvtap can be on it: %w; use macvtap:%s", i.Name, i.MasterType,
			i.Master, unix.EBUSY, i.Master)
	}
	return nil
}

// notBridge is the error about a card of that type where a bridge is wanted.
func notBridge(nic, kind string) error {
	return fmt.Errorf("%s is a %s and not a bridge; use macvtap:%s or packet:%s", nic, kind, nic, nic)
}

// device returns what netlink needs to know to address any device.
func device(name string, index int) netlink.Link {
	return &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: name, Index: index}}
}

// do runs fn on the open port and wraps its error.
func (c *card) do(what string, fn func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := net.ErrClosed
	if !c.closed {
		err = fn()
	}
	if err != nil {
		return fmt.Errorf("%s of a port on %s: %w", what, c.nic, err)
	}
	return nil
}

// shut marks the port closed and reports whether it was open. The caller holds
// c.mu.
func (c *card) shut() bool {
	was := !c.closed
	c.closed = true
	return was
}

// Floods implements Interface.
func (c *card) Floods() bool { return false }

// MAC implements Interface.
func (c *card) MAC() net.HardwareAddr {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.mac)
}

// Offloads implements Interface.
func (c *card) Offloads() vnet.Offloads {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offloads
}

// State implements Interface.
func (c *card) State() (s LinkState, err error) {
	err = c.do("reading the link state", func() (err error) {
		s, err = c.read()
		return err
	})
	return s, err
}

// announce writes a frame to a queue's descriptor: Close, which takes the lock
// too, cannot close that meanwhile, and the kernel lets several write at a time.
func (c *card) announce(fd int, frame []byte) error {
	return c.do("announcing", func() error {
		_, err := unix.Write(fd, frame)
		return os.NewSyscallError("write", err)
	})
}

// randomMAC returns a locally administered unicast address.
func randomMAC() net.HardwareAddr {
	mac := make(net.HardwareAddr, 6)
	rand.Read(mac) // never fails
	mac[0] = mac[0]&^1 | 2
	return mac
}

// checkMAC refuses what cannot be a station's address.
func checkMAC(mac net.HardwareAddr) error {
	if len(mac) != 6 || mac[0]&1 != 0 || slices.Max(mac) == 0 {
		return fmt.Errorf("MAC address %q is not that of one station: six bytes, not all zero, the first one even", mac)
	}
	return nil
}

// checkAddrs refuses a list with something that cannot be a station's address,
// and one that is too long.
func checkAddrs(addrs []net.HardwareAddr) error {
	if len(addrs) > MaxUnicast {
		return fmt.Errorf("%w: %d further addresses, at most %d", ErrUnsupported, len(addrs), MaxUnicast)
	}
	for _, a := range addrs {
		if err := checkMAC(a); err != nil {
			return err
		}
	}
	return nil
}

// checkGroups refuses a list with something that is not the address of a group.
func checkGroups(groups []net.HardwareAddr) error {
	for _, g := range groups {
		if len(g) != 6 || g[0]&1 == 0 {
			return fmt.Errorf("%q is not the address of a group: six bytes, the first one odd", g)
		}
	}
	return nil
}

// cloneAddrs returns a copy of a list of addresses.
func cloneAddrs(addrs []net.HardwareAddr) []net.HardwareAddr {
	out := make([]net.HardwareAddr, len(addrs))
	for i, a := range addrs {
		out[i] = slices.Clone(a)
	}
	return out
}

func whatUp(up bool) string {
	if up {
		return "setting up"
	}
	return "setting down"
}

// setUp sets a port's own netdevice up or down.
func (c *card) setUp(own netlink.Link, up bool) error {
	return c.do(whatUp(up), func() error {
		if !up {
			return c.handle.LinkSetDown(own)
		}
		err := c.handle.LinkSetUp(own)
		if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EADDRINUSE) {
			return fmt.Errorf("%w: %w (something else on %s has its MAC address)", ErrInUse, err, c.nic)
		}
		return err
	})
}

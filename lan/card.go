package lan

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// card has the state that all ports on a netdevice of the kernel have in common.
type card struct {
	*shared // used until the port is closed
	port
}

// Info describes a network card. It is known without opening a port.
type Info struct {
	Name  string
	Index int
	Type  string // veth, bridge, device, ...
	// Master is the bridge or bond that the card is part of, and MasterType the type of that
	// device. Both are empty if there is none.
	Master, MasterType string
	// Encap is the link type of the card: "ether", "loopback", "infiniband", ...
	Encap string
	SetUp bool // administratively up, perhaps without carrier
	LinkState
}

// device returns a link by which netlink addresses the device with this name and index.
func device(name string, index int) netlink.Link {
	return &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: name, Index: index}}
}

func (c *card) Floods() bool { return false }

func (c *card) State() (s LinkState, err error) {
	err = c.do("reading the link state", func() (err error) {
		s, err = c.read()
		return err
	})
	return s, err
}

// announce writes a frame to fd, the descriptor of a queue. It holds c.lock, as Close does, so
// that fd stays open. The kernel allows several writers at a time.
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

// taken reports whether err means that the address is that of another device.
func taken(err error) bool { return errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EADDRINUSE) }

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
		if taken(err) {
			return fmt.Errorf("%w: %w (something else on %s has its MAC address)", ErrInUse, err, c.nic)
		}
		return err
	})
}

// Package ethtool reads and sets the speed of network devices that ethtool(8) shows.
package ethtool

import (
	"math"

	"github.com/mdlayher/ethtool"
)

// Client works in the network namespace of the thread that called New.
type Client struct{ c *ethtool.Client }

// New opens a client. The error is os.ErrNotExist if the kernel lacks ethtool's netlink
// interface.
func New() (*Client, error) {
	c, err := ethtool.New()
	if err != nil {
		return nil, err
	}
	return &Client{c}, nil
}

// Close closes the client.
func (c *Client) Close() error { return c.c.Close() }

// Speed returns the speed of a network device in Mbit/s, or 0 if it is unknown, as for
// virtual devices, and for cards without a cable.
func (c *Client) Speed(name string) (mbit int, err error) {
	mode, err := c.c.LinkMode(ethtool.Interface{Name: name})
	if err != nil {
		return 0, err
	}
	// Drivers report an unknown speed as -1, also of 16 bits.
	if v := uint32(mode.SpeedMegabits); v <= math.MaxInt32 && v != math.MaxUint16 {
		return int(v), nil
	}
	return 0, nil
}

// SetSpeed sets the speed in Mbit/s that a network device shows, with full duplex. If speed is
// 0 or out of ethtool's range, the device shows both as unknown.
func (c *Client) SetSpeed(name string, mbit int) error {
	duplex := ethtool.Full
	if mbit <= 0 || mbit > math.MaxInt32 {
		mbit, duplex = math.MaxUint32, ethtool.Unknown
	}
	return c.c.UpdateLinkMode(ethtool.Interface{Name: name},
		&ethtool.LinkModeUpdate{SpeedMegabits: &mbit, Duplex: &duplex})
}

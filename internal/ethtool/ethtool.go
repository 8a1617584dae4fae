// Package ethtool reads and sets the speed of network devices, as ethtool(8)
// shows it.
package ethtool

import (
	"math"

	"github.com/mdlayher/ethtool"
)

// Client asks and sets, in the network namespace of the thread that called New.
type Client struct{ c *ethtool.Client }

// New opens a client. An error is os.ErrNotExist where the kernel does not have
// ethtool's netlink interface.
func New() (*Client, error) {
	c, err := ethtool.New()
	if err != nil {
		return nil, err
	}
	return &Client{c}, nil
}

// Close closes the client.
func (c *Client) Close() error { return c.c.Close() }

// Speed returns the speed of a network device in Mbit/s, or 0 if that is not
// known: virtual ones have none, nor have cards without a cable.
func (c *Client) Speed(name string) (mbit int, err error) {
	mode, err := c.c.LinkMode(ethtool.Interface{Name: name})
	if err != nil {
		return 0, err
	}
	// Drivers write "not known" with 16 bits as well, and as a negative number.
	if v := uint32(mode.SpeedMegabits); v <= math.MaxInt32 && v != math.MaxUint16 {
		return int(v), nil
	}
	return 0, nil
}

// SetSpeed has a network device show a speed in Mbit/s, full duplex, or, if that
// is 0 or no number that ethtool has, that neither is known.
func (c *Client) SetSpeed(name string, mbit int) error {
	duplex := ethtool.Full
	if mbit <= 0 || mbit > math.MaxInt32 {
		mbit, duplex = math.MaxUint32, ethtool.Unknown
	}
	return c.c.UpdateLinkMode(ethtool.Interface{Name: name},
		&ethtool.LinkModeUpdate{SpeedMegabits: &mbit, Duplex: &duplex})
}

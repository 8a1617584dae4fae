package core

import "fmt"

// With Config.ProvePath the second message of each side on the control channel is one packet of
// the path MTU. The channel is reliable and ordered: where such packets do not get through, only
// the first message of the peer is heard, and the session ends before it has begun.

// portMTU is a fabric.Device that knows its port's MTU in bytes at the moment.
type portMTU interface {
	PortMTU() (int, error)
}

// Fits returns an error if the port's MTU has fallen below the path MTU. What the device cannot
// say ends no session.
func (c *Session) Fits() error {
	d, ok := c.Device.(portMTU)
	if !ok {
		return nil
	}
	path := int(c.PathMTU.Load())
	if mtu, err := d.PortMTU(); err == nil && mtu < path {
		return fmt.Errorf("%w: %d and %d bytes; was the MTU of a netdevice changed?", ErrPathMTU, mtu, path)
	}
	return nil
}

package iounit

import (
	"github.com/splitnic/splitnic/protocol"
)

// What a host's requests may cost. Those that change a netdevice hold the kernel's
// lock of all netdevices for some hundred microseconds to milliseconds each, so that
// whatever else is done with any netdevice of the machine waits: sessions that
// begin, the status, an administrator's commands.
const (
	costRead   = 1
	costChange = 10
	costReset  = 4 * costChange
	// requestRate is what one key may have its requests cost in a second in the
	// long run: 20 changes of a netdevice.
	requestRate = 20 * costChange
	// costSession is what a host asks for when its session begins, several times
	// over.
	costSession = 4 * costChange
)

// costOf is what a request costs.
func costOf(t protocol.CfgType, data []byte) int {
	switch t {
	case protocol.CfgReset:
		return costReset
	case protocol.CfgMAC, protocol.CfgLinkState, protocol.CfgFilter, protocol.CfgOffloads:
		if len(data) > 0 {
			return costChange
		}
	default: // nothing that a netdevice is changed for
	}
	return costRead
}

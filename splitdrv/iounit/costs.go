package iounit

import (
	"github.com/splitnic/splitnic/protocol"
)

// The cost of a host's requests. A request that changes a netdevice holds the kernel's RTNL
// lock for some hundred microseconds to milliseconds. All other operations on netdevices of
// the machine wait: new sessions, the status, an administrator's commands. A change of VLANs
// or of the MTU ends the direct connections of the host, which concerns all their peers.
const (
	costRead   = 1
	costChange = 10
	costReset  = 4 * costChange
	// requestRate is the cost of the requests of one key that is permitted per second in the
	// long run: 20 changes of a netdevice.
	requestRate = 20 * costChange
	// costSession is more than the cost of a host's requests at the beginning of a
	// session.
	costSession = 4 * costChange
)

func costOf(t protocol.CfgType, data []byte) int {
	switch t {
	case protocol.CfgReset:
		return costReset
	case protocol.CfgMAC, protocol.CfgMTU, protocol.CfgLinkState, protocol.CfgFilter, protocol.CfgVLAN,
		protocol.CfgOffloads:
		if len(data) > 0 {
			return costChange
		}
	default: // requests that change nothing
	}
	return costRead
}

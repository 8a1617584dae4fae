package paths

import (
	"sync/atomic"

	"github.com/splitnic/splitnic/vnet"
)

// verdict is the result of checking a frame from a peer.
type verdict uint8

const (
	pass        verdict = iota
	source              // dropped: not from an address of the peer
	destination         // dropped: not to an address of this host
	vlan                // dropped: in a VLAN that is not permitted, or with another tag
	malformed           // dropped: malformed
	verdicts
)

// counts has the counters of a path.
type counts struct {
	outFrames, outBytes, inFrames, inBytes atomic.Uint64
	dropped                                [verdicts]atomic.Uint64
	full                                   atomic.Uint64
}

// sent counts frames passed to the sender.
func (c *counts) sent(ops []vnet.ReadOp) {
	var frames, bytes uint64
	for i := range ops {
		if ops[i].Err == nil {
			frames++
			bytes += uint64(len(ops[i].Frame) - vnet.HdrLen)
		}
	}
	c.outFrames.Add(frames)
	c.outBytes.Add(bytes)
}

// unsent subtracts a frame that was passed to the sender and not sent.
func (c *counts) unsent(frame []byte) {
	c.outFrames.Add(^uint64(0))
	c.outBytes.Add(-uint64(len(frame) - vnet.HdrLen))
}

// Counts has the counters of a path.
type Counts struct {
	OutFrames uint64 `json:"out_frames"` // passed to the direct connection, and not left over at its end
	OutBytes  uint64 `json:"out_bytes"`
	InFrames  uint64 `json:"in_frames"` // from the peer, written to the netdevice
	InBytes   uint64 `json:"in_bytes"`

	// Frames from the peer that were dropped: from an address that is not the peer's, to an
	// address that is not this host's, in a VLAN that is not permitted, or malformed.
	Source      uint64 `json:"source"`
	Destination uint64 `json:"destination"`
	VLAN        uint64 `json:"vlan"`
	Malformed   uint64 `json:"malformed"`

	Full uint64 `json:"full"` // frames to the peer that were dropped because it is slow
	Held uint64 `json:"held"` // frames that are waiting now
}

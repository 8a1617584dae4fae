package paths

import (
	"sync/atomic"

	"github.com/splitnic/splitnic/vnet"
)

// verdict says what is done with a frame from a peer.
type verdict uint8

const (
	pass        verdict = iota
	source              // dropped: not from an address of the peer's
	destination         // dropped: not to an address of this host's
	vlan                // dropped: in a VLAN that is not permitted, or with another tag
	malformed           // no frame, or none that a netdevice should be given
	verdicts
)

// counts are what a path counts.
type counts struct {
	outFrames, outBytes, inFrames, inBytes atomic.Uint64
	dropped                                [verdicts]atomic.Uint64
	full                                   atomic.Uint64
}

// sent counts frames that the sender has got.
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

// unsent takes back a frame that the sender has got and not sent.
func (c *counts) unsent(frame []byte) {
	c.outFrames.Add(^uint64(0))
	c.outBytes.Add(-uint64(len(frame) - vnet.HdrLen))
}

// Counts are the counts of a path.
type Counts struct {
	OutFrames uint64 `json:"out_frames"` // given to the direct connection, and not taken back at its end
	OutBytes  uint64 `json:"out_bytes"`
	InFrames  uint64 `json:"in_frames"` // from the peer, and written to the netdevice
	InBytes   uint64 `json:"in_bytes"`

	// Frames from the peer that were dropped: from an address that is not the peer's,
	// to one that is not this host's, in a VLAN that is not permitted, or no frame.
	Source      uint64 `json:"source"`
	Destination uint64 `json:"destination"`
	VLAN        uint64 `json:"vlan"`
	Malformed   uint64 `json:"malformed"`

	Full uint64 `json:"full"` // frames to the peer that were dropped because it is slow
	Held uint64 `json:"held"` // frames that wait now
}

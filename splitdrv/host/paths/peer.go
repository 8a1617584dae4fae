package paths

import (
	"errors"
	"fmt"

	"github.com/splitnic/splitnic/protocol"
)

var errNoAddress = errors.New("a direct path between no addresses")

// Peer is another host, as the I/O unit has told of it.
type Peer struct {
	ID uint64 // of the direct connection
	// MACs are of the peer: frames to them go directly, and it may send from these
	// only.
	MACs []protocol.MAC
	// Own are of this host, as the peer was told. Frames from others stay on the path
	// through the I/O unit, and frames to others are dropped.
	Own []protocol.MAC
	// VLANs are those besides untagged frames. Frames in others stay on the path
	// through the I/O unit, and are dropped on arrival.
	VLANs protocol.VLANSet
	// Out and In are the nonces of the markers that this side sends, and expects.
	Out, In Nonces
	// Probed and Arrived are called once, by a worker, which they must not keep, when
	// the peer's probes, or markers, have come through all queues.
	Probed, Arrived func()
	MTU             int // of frames from the peer
}

// Nonces are those of the markers of one direction.
type Nonces struct {
	Probe  protocol.MarkerNonce // of those that nothing waits for
	Marker protocol.MarkerNonce
}

func (p *Peer) check() error {
	if len(p.MACs) == 0 || len(p.Own) == 0 {
		return errNoAddress
	}
	for _, some := range [][]protocol.MAC{p.MACs, p.Own} {
		for _, m := range some {
			if !m.Valid() {
				return fmt.Errorf("a direct path for %v: %w", m, protocol.ErrMAC)
			}
		}
	}
	if p.Probed == nil {
		p.Probed = func() {}
	}
	if p.Arrived == nil {
		p.Arrived = func() {}
	}
	return nil
}

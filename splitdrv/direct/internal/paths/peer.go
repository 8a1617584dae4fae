package paths

import (
	"errors"
	"fmt"

	"github.com/splitnic/splitnic/protocol"
)

var errNoAddress = errors.New("a direct path between no addresses")

// Peer describes another host, according to the I/O unit.
type Peer struct {
	// MACs are the addresses of the peer: frames to them use the direct path, and the peer
	// may send only from them.
	MACs []protocol.MAC
	// Own are the addresses of this host that the peer knows. Frames from other addresses
	// use the path through the I/O unit, and received frames to others are dropped.
	Own []protocol.MAC
	// VLANs are the permitted VLANs, in addition to untagged frames. Frames in other VLANs
	// use the path through the I/O unit, and are dropped if they are received directly.
	VLANs protocol.VLANSet
	// Out and In are the nonces of the markers that this side sends and expects.
	Out, In Nonces
	// Probed and Arrived are each called once, when the peer's probes or markers have arrived
	// in all queues. A worker calls them, so they must not wait.
	Probed, Arrived func()
	// Overflowed is called once if the path is given up after Enter, because more frames wait
	// than there is room for (Path.Leave). It must not wait either.
	Overflowed func()
	MTU        int // limit for frames from the peer, in bytes
}

// Nonces has the nonces of the markers of one direction.
type Nonces struct {
	Probe  protocol.MarkerNonce // nonce of probes
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
	if p.Overflowed == nil {
		p.Overflowed = func() {}
	}
	return nil
}

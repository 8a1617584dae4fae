package paths

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// ErrTaken is wrapped by errors about an address that another path has.
var ErrTaken = errors.New("another direct path has the address")

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

// Path is a direct path to another host. Its methods are called by one goroutine at a
// time, Port and Counts apart.
type Path struct {
	split     *Split
	peer      Peer
	own       protocol.MACSet
	theirs    protocol.MACSet
	reader    *reader
	port      directPort
	holdLimit int // bytes in the ring while frames wait

	state   state       // guarded by Split.mu, and written with the queues' locks as well
	flows   atomic.Bool // the state is direct
	gone    atomic.Bool // the state is closed
	probes  arrivals
	markers arrivals
	count   counts
}

// Port is the port of the direct connection's data channel. It must not be used any
// more when the path is closed.
func (p *Path) Port() messaging.Port { return &p.port }

// Enter has frames to the peer wait, and sends markers behind those before, through each
// queue of the path through the I/O unit.
func (p *Path) Enter() { p.happens(enter, p.mark) }

// Mark sends markers, as often as it is called: they can be lost as any frame can.
// Before Enter these are probes, which tell whether markers come to the peer at all.
// Frames need not wait to find that out.
func (p *Path) Mark() {
	p.split.mu.Lock()
	defer p.split.mu.Unlock()
	if p.state == opening || p.state == held {
		p.split.change(p.mark)
	}
}

// Confirm lets the frames go directly: the peer has got the markers.
func (p *Path) Confirm() { p.happens(confirm, func() { p.reader.ring.setShut(false) }) }

// Leave has frames to the peer wait again. Those that the port has given are for its
// user to bring to the peer.
func (p *Path) Leave() { p.happens(leave, func() { p.reader.ring.setShut(true) }) }

// Close ends the path. What the direct connection has not sent, which may be nil, and
// what has waited goes through the I/O unit, and so does everything after it.
func (p *Path) Close(unsent *messaging.Unsent) {
	p.happens(end, func() {
		s := p.split
		if unsent != nil {
			to, most := s.uplinkRing(p.reader.last)
			for _, frames := range unsent.Frames {
				for _, f := range frames {
					if !to.grow(f, p.reader.last, most) {
						s.addLost(1)
					}
				}
			}
		}
		s.addLost(p.reader.ring.moveTo(s.uplinkRing))
	})
}

// happens tells the path of an event. What follows from it is done while no frame is read.
func (p *Path) happens(e event, then func()) {
	s := p.split
	s.mu.Lock()
	defer s.mu.Unlock()
	was := p.state
	if was.after(e) == was {
		return
	}
	if e == enter {
		p.reader.ring.open(s.ring)
	}
	s.change(func() {
		p.state = was.after(e)
		p.flows.Store(p.state == direct)
		p.gone.Store(p.state == closed)
		then()
		if p.state == closed {
			s.forget(p)
		}
	})
	p.reader.wake()
	if p.state == closed {
		s.tidy(p)
	}
}

// mark puts a marker behind the frames of each queue of the path through the I/O unit. One
// that finds no room is lost, as others are.
func (p *Path) mark() {
	nonce := p.peer.Out.Marker
	if p.state == opening {
		nonce = p.peer.Out.Probe
	}
	queues := p.split.queues[:p.split.used.Load()]
	var frame [protocol.MarkerLen]byte
	for i, q := range queues {
		m := protocol.Marker{Nonce: nonce, Queue: uint16(i), Queues: uint16(len(queues))}
		q.uplink.ring.put(protocol.AppendMarker(frame[:0], p.peer.MACs[0], p.peer.Own[0], &m), i)
	}
}

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

// Counts are the counts of a path.
type Counts struct {
	OutFrames uint64 `json:"out_frames"` // given to the direct connection
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

// Counts returns what has been counted.
func (p *Path) Counts() Counts {
	c := &p.count
	return Counts{
		OutFrames: c.outFrames.Load(), OutBytes: c.outBytes.Load(),
		InFrames: c.inFrames.Load(), InBytes: c.inBytes.Load(),
		Source: c.dropped[source].Load(), Destination: c.dropped[destination].Load(),
		VLAN: c.dropped[vlan].Load(), Malformed: c.dropped[malformed].Load(),
		Full: c.full.Load(), Held: uint64(p.reader.ring.frames.Load()),
	}
}

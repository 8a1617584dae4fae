package paths

import (
	"errors"
	"fmt"
	"slices"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// errTaken is wrapped by the error of Open if another path has one of the addresses.
var errTaken = errors.New("another direct path has the address")

// Path is a direct path to another host. Its methods are called by one goroutine at a time,
// except Port and Counts.
type Path struct {
	*route
	split *Split
	port  directPort
}

// Open opens a path to another host. Frames use the path through the I/O unit until Enter.
func (s *Split) Open(peer Peer) (*Path, error) {
	if err := peer.check(); err != nil {
		return nil, fmt.Errorf("paths: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.paths {
		for _, m := range peer.MACs {
			if slices.Contains(other.peer.MACs, m) {
				return nil, fmt.Errorf("paths: address %v: %w", m, errTaken)
			}
		}
	}
	p := &Path{split: s, route: &route{
		peer: peer, own: protocol.NewMACSet(peer.Own), theirs: protocol.NewMACSet(peer.MACs),
	}}
	p.holdLimit = holds * s.ring * 3 / 4 // the rest is for frames that arrive before the sender has caught up
	var err error
	if p.reader, err = newReader(&p.count.full); err != nil {
		return nil, fmt.Errorf("paths: %w", err)
	}
	p.reader.ring.setShut(true)
	p.reader.ring.spare = &s.spare
	for _, q := range s.queues {
		q.uplink.ring.open(s.ring)
	}
	p.port = directPort{input: input{reader: p.reader, shared: &s.shared, queues: s.queues, sent: &p.count}, path: p.route}
	s.flows.used.Store(true)
	if s.shared.giveUp == nil { // set once, before the first path is published
		s.shared.giveUp = s.giveUp
	}
	s.change(func() {
		s.paths = append(s.paths, p.route)
		s.expect()
	})
	return p, nil
}

// Port returns the port for the direct connection's data channel. It must not be used after
// Close.
func (p *Path) Port() messaging.Port { return &p.port }

// Enter makes frames to the peer wait, and sends markers behind earlier frames, through each
// queue of the path through the I/O unit.
func (p *Path) Enter() { p.happens(enter, p.mark) }

// Mark sends markers again, because they can be lost like any frame. Before Enter it sends
// probes, which show whether markers reach the peer at all; frames do not wait for probes.
func (p *Path) Mark() {
	p.split.mu.Lock()
	defer p.split.mu.Unlock()
	if p.state == opening || p.state == held {
		p.split.change(p.mark)
	}
}

// Confirm makes frames use the direct path, after the peer has received the markers.
func (p *Path) Confirm() {
	p.happens(confirm, func() {
		p.reader.ring.reserve(p.split.ring/4, holds*p.split.ring)
		p.reader.ring.setShut(false)
	})
}

// Leave makes frames to the peer wait again. The caller is responsible for the delivery of
// frames that were read from the port. If frames wait for the markers, none has gone
// directly: then they, and all later ones, use the path through the I/O unit at once.
func (p *Path) Leave() { p.happens(leave, p.left) }

// left does what leaving needs in the new state.
func (p *Path) left() {
	p.reader.ring.setShut(true)
	if p.state == spilled {
		p.split.addLost(p.reader.ring.moveTo(p.split.uplinkRing))
	}
}

// giveUp leaves a path for whose frames there is no more room, because the peer does not
// confirm the markers. If frames could wait longer, the netdevice could not be read, and
// those to others would wait too.
func (s *Split) giveUp(r *route) {
	p := Path{route: r, split: s}
	if p.happens(overflow, p.left) {
		r.peer.Overflowed()
	}
}

// Close closes the path. unsent, which may be nil, has frames that the direct connection has
// read and not sent. They, the frames that wait, and all later frames use the path through
// the I/O unit, in this order.
func (p *Path) Close(unsent *messaging.Unsent) {
	p.happens(end, func() {
		s := p.split
		if unsent != nil {
			to, most := s.uplinkRing(p.port.last)
			for _, frames := range unsent.Frames {
				for _, f := range frames {
					p.count.unsent(f)
					if !to.put(f, p.port.last, most) {
						s.addLost(1)
					}
				}
			}
		}
		s.addLost(p.reader.ring.moveTo(s.uplinkRing))
	})
}

// happens handles an event, and reports whether it changes the state. If it does, then is
// called while no frame is read.
func (p *Path) happens(e event, then func()) (changes bool) {
	s := p.split
	s.mu.Lock()
	defer s.mu.Unlock()
	was := p.state
	if was.after(e) == was {
		return false
	}
	if e == enter {
		p.reader.ring.open(s.ring)
	}
	s.change(func() {
		p.state = was.after(e)
		p.reader.flows.Store(p.state == direct)
		p.reader.most = 0
		if p.state.holds() {
			p.reader.most = holds * s.ring
		}
		p.gone.Store(p.state == closed)
		then()
		if p.state == closed {
			s.forget(p.route)
		}
	})
	p.reader.wake()
	if p.state == closed {
		s.tidy(p.route)
	}
	return true
}

// mark sends a marker behind the frames of each queue of the path through the I/O unit. A
// marker for which there is no room is lost.
func (p *Path) mark() {
	nonce := p.peer.Out.Marker
	if p.state == opening {
		nonce = p.peer.Out.Probe
	}
	queues := p.split.queues[:p.split.used.Load()]
	var frame [protocol.MarkerLen]byte
	for i, q := range queues {
		m := protocol.Marker{Nonce: nonce, Queue: uint16(i), Queues: uint16(len(queues))}
		q.uplink.ring.put(protocol.AppendMarker(frame[:0], p.peer.MACs[0], p.peer.Own[0], &m), i, 0)
	}
}

// Counts returns the counters.
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

package paths

import (
	"errors"
	"fmt"
	"slices"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// ErrTaken is wrapped by errors about an address that another path has.
var ErrTaken = errors.New("another direct path has the address")

// Path is a direct path to another host. Its methods are called by one goroutine at a
// time, Port and Counts apart.
type Path struct {
	*route
	split *Split
	port  directPort
}

// Open makes a path to another host. Frames go on through the I/O unit until Enter.
func (s *Split) Open(peer Peer) (*Path, error) {
	if err := peer.check(); err != nil {
		return nil, fmt.Errorf("paths: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.paths {
		for _, m := range peer.MACs {
			if slices.Contains(other.peer.MACs, m) {
				return nil, fmt.Errorf("paths: address %v: %w", m, ErrTaken)
			}
		}
	}
	p := &Path{split: s, route: &route{
		peer: peer, own: protocol.NewMACSet(peer.Own), theirs: protocol.NewMACSet(peer.MACs),
	}}
	p.holdLimit = s.ring * 3 / 4 // the rest is for what comes before the sender has caught up
	var err error
	if p.reader, err = newReader(&p.count.full); err != nil {
		return nil, fmt.Errorf("paths: %w", err)
	}
	p.reader.ring.setShut(true)
	for _, q := range s.queues {
		q.uplink.ring.open(s.ring)
	}
	p.port = directPort{input: input{reader: p.reader, shared: &s.shared, queues: s.queues, sent: &p.count}, path: p.route}
	s.flows.used.Store(true)
	s.change(func() {
		s.paths = append(s.paths, p.route)
		s.expect()
	})
	return p, nil
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
			to, most := s.uplinkRing(p.port.last)
			for _, frames := range unsent.Frames {
				for _, f := range frames {
					p.count.unsent(f)
					if !to.grow(f, p.port.last, most) {
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
		p.reader.flows.Store(p.state == direct)
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

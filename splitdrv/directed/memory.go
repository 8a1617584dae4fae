package directed

import (
	"errors"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// Direction is that of the data in memory.
type Direction uint8

// The directions.
const (
	Source Direction = iota // to I/O devices: I/O units can read the memory
	Result                  // from I/O devices: I/O units can write the memory
)

// Memory is registered memory of this unit, which can be named in lists until Close.
type Memory struct {
	link     *Link
	space    *space
	region   fabric.Region
	platform protocol.Platform
}

// Register makes mem accessible to the I/O units that the owner at the other end directs, for the
// requests of this unit, in one direction. mem has to be outside the Go heap, and to stay mapped
// until the Memory is closed.
func (l *Link) Register(mem []byte, d Direction) (*Memory, error) {
	return l.Offer(mem, d, l.cfg.Platform)
}

// Offer is Register for the requests of another unit, the requester, which the owner at the other
// end has to allow.
func (l *Link) Offer(mem []byte, d Direction, requester protocol.Platform) (*Memory, error) {
	s, err := l.space(requester)
	if err != nil {
		return nil, err
	}
	access := fabric.LocalWrite | fabric.RemoteWrite
	if d == Source {
		access = fabric.RemoteRead
	}
	r, err := s.dom.Register(mem, access)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.offers++
	return &Memory{link: l, space: s, region: r, platform: l.cfg.Platform}, nil
}

func (l *Link) space(requester protocol.Platform) (*space, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	s := l.spaces[requester]
	if s == nil {
		dom, err := l.cfg.Device.NewDomain()
		if err != nil {
			return nil, err
		}
		s = &space{dom: dom}
		l.spaces[requester] = s
	}
	return s, nil
}

// Fragment returns the list fragment for a part of the memory.
func (m *Memory) Fragment(offset, length int) protocol.Fragment {
	return protocol.Fragment{
		Platform: m.platform, Handle: m.region.RKey(), Addr: m.region.Addr() + uint64(offset), Len: uint32(length),
	}
}

// Close revokes the memory: from then on the device refuses its handle.
func (m *Memory) Close() error {
	if err := m.region.Close(); err != nil {
		return err
	}
	m.link.mu.Lock()
	defer m.link.mu.Unlock()
	m.space.offers--
	return nil
}

// errTooMany is the error if an owner's I/O units have MaxConnections connections already.
var errTooMany = errors.New("connections with too many I/O units")

// errUnasked is the error if an I/O unit asks for memory, and there is neither a request of this
// unit nor memory that was offered.
var errUnasked = errors.New("no request, and no memory for it")

// accept makes this side's end of a connection by which an I/O unit reaches the memory that was
// registered with the link for the requests of one unit. It replaces an earlier one.
func (l *Link) accept(c protocol.DirectedConnect) (protocol.DirectedEnd, error) {
	by := reach{c.From, c.Requester}
	l.mu.Lock()
	s := l.spaces[c.Requester]
	wanted := s != nil && s.offers > 0
	if c.Requester == l.cfg.Platform {
		wanted = s != nil && l.doing > 0
	}
	if !wanted {
		l.mu.Unlock()
		return protocol.DirectedEnd{}, errUnasked
	}
	old, again := l.open[by]
	delete(l.open, by)
	full := len(l.open) >= l.cfg.MaxConnections
	l.mu.Unlock()
	if again {
		if err := old.close(); err != nil {
			return protocol.DirectedEnd{}, err
		}
	}
	if full {
		return protocol.DirectedEnd{}, errTooMany
	}
	reads := min(int(c.End.Reads), l.cfg.Device.Limits().MaxDestRdAtomic)
	var a answering
	var err error
	if a.cq, err = s.dom.NewCQ(1, 0); err != nil {
		return protocol.DirectedEnd{}, err
	}
	a.qp, err = s.dom.NewQP(fabric.QPConfig{
		Transport: fabric.RC, SendCQ: a.cq, RecvCQ: a.cq, MaxSend: 1, MaxRecv: 1, MaxDestRdAtomic: uint8(reads),
	})
	if err != nil {
		return protocol.DirectedEnd{}, errors.Join(err, a.cq.Close())
	}
	if err := a.qp.Connect(addressOf(c.End), l.cfg.Timing); err != nil {
		return protocol.DirectedEnd{}, errors.Join(err, a.close())
	}
	l.mu.Lock()
	l.open[by] = a
	l.mu.Unlock()
	return endOf(a.qp.Address(), reads), nil
}

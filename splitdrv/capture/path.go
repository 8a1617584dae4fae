package capture

import "github.com/splitnic/splitnic/vnet"

// Path is one way of frames between a netdevice and the fabric, such as a queue of a
// session. A data channel shows it what passes, one goroutine for each direction.
type Path struct {
	point *Point
	is    identity
}

// identity is what a path is called.
type identity struct{ name, description string }

// Direction is that of a frame, as seen from the endpoint.
type Direction uint8

// The directions.
const (
	Inbound  Direction = 1 // it has come over the fabric
	Outbound Direction = 2 // it is about to be sent over the fabric
)

// Sent shows frames that were read from a port and are to be sent; those with an Err are
// none. p may be nil.
//
// borrowed: ops and their frames, for the call.
func (p *Path) Sent(ops []vnet.ReadOp) {
	if p.watched() {
		p.sent(ops)
	}
}

// Received shows frames that have come and are to be written to a port, each of which
// lies in its Head. p may be nil.
//
// borrowed: ops and their frames, for the call.
func (p *Path) Received(ops []vnet.WriteOp) {
	if p.watched() {
		p.received(ops)
	}
}

// Dropped shows a frame that has come and goes no further, and why, in words that are asked
// for where somebody captures the frame. p may be nil.
//
// borrowed: frame, for the call.
func (p *Path) Dropped(frame []byte, why func() string) {
	for _, c := range p.point.list() {
		if s := c.begin(p); s != nil {
			c.add(s, Inbound, frame, why)
		}
		c.finish()
	}
}

// Watched reports whether anybody captures, so that Dropped need not be called. p may be nil.
func (p *Path) Watched() bool { return p.watched() }

// watched reports whether anybody captures. All of it is inlined where frames pass.
func (p *Path) watched() bool { return p != nil && p.point.running.Load() != nil }

func (p *Path) sent(ops []vnet.ReadOp) {
	for _, c := range p.point.list() {
		if s := c.begin(p); s != nil {
			for i := range ops {
				if ops[i].Err == nil {
					c.add(s, Outbound, ops[i].Frame, nil)
				}
			}
		}
		c.finish()
	}
}

func (p *Path) received(ops []vnet.WriteOp) {
	for _, c := range p.point.list() {
		if s := c.begin(p); s != nil {
			for i := range ops {
				c.add(s, Inbound, ops[i].Head, nil)
			}
		}
		c.finish()
	}
}

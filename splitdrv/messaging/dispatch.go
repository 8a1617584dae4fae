package messaging

import (
	"cmp"
	"slices"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/protocol"
)

// dispatch handles one control message, on the control handler's thread. What
// takes time is handed to the configuration goroutine. msg is only lent.
func (c *Conn) dispatch(msg []byte) error {
	h, err := protocol.DecodeHeader(msg)
	if err != nil {
		return controlViolation(err, "header")
	}
	switch h.Function {
	case protocol.FuncBufferRecvPoolUpdate:
		return c.onUpdate(msg)
	case protocol.FuncBufferRecvPool:
		return c.onPools(msg)
	case protocol.FuncCfgUtilRequest:
		return c.onRequest(msg)
	case protocol.FuncCfgUtilReply:
		return c.onReply(msg)
	default:
		return controlViolation(ErrUnexpected, "%v", h.Function)
	}
}

// onPools takes pools that the peer lends.
func (c *Conn) onPools(msg []byte) error {
	m, err := protocol.DecodeBufferRecvPool(msg)
	if err != nil {
		return controlViolation(err, "BufferRecvPool")
	}
	for i := range m.Len() {
		p := m.At(i)
		if err := p.Valid(); err != nil {
			return controlViolation(err, "BufferRecvPool")
		}
		if !protocol.CanImm(p.Ref, p.Elements-1, int(p.ElementSize)-1) {
			return controlViolation(protocol.ErrSize, "pool %d of %d elements of %d bytes, which immediate data cannot name", p.Ref, p.Elements, p.ElementSize)
		}
		if int(p.Channel()) > len(c.channels) {
			return controlViolation(ErrNoChannel, "pool %d for data channel %d of %d", p.Ref, p.Channel(), len(c.channels))
		}
		if c.granted[p.Ref] != nil {
			return controlViolation(ErrPoolTwice, "pool %d", p.Ref)
		}
		s := c.channels[p.Channel()-1].tx
		old := *s.grants.Load()
		if len(old) == MaxPoolsPerChannel {
			return controlViolation(ErrTooManyPools, "pool %d is number %d of data channel %d", p.Ref, len(old)+1, p.Channel())
		}
		g := &grantedPool{ref: p.Ref, Grant: bufpool.NewGrant(p.Addr, p.RKey, int(p.ElementSize), int(p.Elements), bufpool.LatestFirst)}
		c.granted[p.Ref] = &grantOf{pool: g, sender: s}
		grants := append(slices.Clone(old), g)
		slices.SortStableFunc(grants, func(a, b *grantedPool) int { return cmp.Compare(a.ElementSize(), b.ElementSize()) })
		s.grants.Store(&grants)
		s.credited()
	}
	return nil
}

// grantOf is a pool of the peer's and the sender that uses it.
type grantOf struct {
	pool   *grantedPool
	sender *sender
}

// onUpdate makes the elements in an update usable again.
func (c *Conn) onUpdate(msg []byte) error {
	m, err := protocol.DecodeBufferRecvPoolUpdate(msg)
	if err != nil {
		return controlViolation(err, "BufferRecvPoolUpdate")
	}
	for r := m.Returns(); r.Next(); {
		if r.Pool() >= protocol.MaxImmPools || c.granted[r.Pool()] == nil {
			return controlViolation(ErrPool, "update of pool %d", r.Pool())
		}
		g := c.granted[r.Pool()]
		for i := range r.Len() {
			if err := g.pool.Return(uint32(r.Element(i))); err != nil {
				return controlViolation(err, "update of pool %d", r.Pool())
			}
		}
		g.sender.credited()
	}
	return nil
}

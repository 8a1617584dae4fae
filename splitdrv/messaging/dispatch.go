package messaging

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/protocol"
)

// dispatch handles one control message, on the control handler's goroutine. It
// never waits: what takes time is handed to others. msg is only lent.
func (c *Conn) dispatch(msg []byte) error {
	if c.unproved() {
		return c.hearProof(msg)
	}
	h, err := protocol.DecodeHeader(msg)
	if err != nil {
		return controlViolation(err, "header")
	}
	if c.cfg.Mode.Sends() {
		switch h.Function {
		case protocol.FuncBufferRecvPoolGet, protocol.FuncBufferPoolFlushRequest, protocol.FuncBufferPoolFlushReply,
			protocol.FuncBufferRDMAIndicate:
			return controlViolation(ErrUnexpected, "%v in mode %s", h.Function, c.cfg.Mode)
		default:
		}
	}
	switch h.Function {
	case protocol.FuncBufferRecvPoolUpdate:
		return c.onUpdate(msg)
	case protocol.FuncBufferRDMAIndicate:
		return c.onIndicate(msg)
	case protocol.FuncBufferRecvPool:
		return c.onPools(msg)
	case protocol.FuncBufferRecvPoolGet:
		return c.onGet(msg)
	case protocol.FuncBufferPoolFlushRequest:
		return c.onFlush(msg)
	case protocol.FuncBufferPoolFlushReply:
		return c.onFlushed(msg)
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
	pools := make([]protocol.Pool, m.Len())
	for i := range pools {
		pools[i] = m.At(i)
	}
	// The largest elements first: a frame that does not fit the others would
	// seem to fit nowhere.
	slices.SortStableFunc(pools, func(a, b protocol.Pool) int { return cmp.Compare(b.ElementSize, a.ElementSize) })
	for _, p := range pools {
		if err := c.addRemote(p); err != nil {
			return err
		}
	}
	return nil
}

// addRemote takes a pool that the peer lends.
func (c *Conn) addRemote(p protocol.Pool) error {
	err, order := p.Valid(), bufpool.LatestFirst
	if c.cfg.Mode.Sends() {
		err, order = p.ValidSend(), bufpool.InOrder
	}
	if err == nil && int(p.Channel()) > len(c.channels) {
		err = fmt.Errorf("%w: pool %d for data channel %d of %d", ErrNoChannel, p.Ref, p.Channel(), len(c.channels))
	}
	if err == nil {
		r := bufpool.NewRemote(p, order)
		r.Invalidate = c.cfg.Invalidation && p.Invalidate()
		err = c.pools.step(bufpool.Event{Kind: bufpool.Lent, Remote: r})
	}
	if err != nil {
		return controlViolation(err, "BufferRecvPool")
	}
	return nil
}

// onUpdate makes the elements in an update usable again.
func (c *Conn) onUpdate(msg []byte) error {
	m, err := protocol.DecodeBufferRecvPoolUpdate(msg)
	if err != nil {
		return controlViolation(err, "BufferRecvPoolUpdate")
	}
	for r := m.Returns(); r.Next(); {
		g := c.pools.remote(r.Pool())
		if g == nil {
			return controlViolation(ErrPool, "update of pool %d", r.Pool())
		}
		tx := c.channels[g.Channel-1].tx
		for i := range r.Len() {
			elem := r.Element(i)
			if err := g.Return(uint32(elem)); err != nil {
				return controlViolation(err, "update of pool %d", r.Pool())
			}
			tx.indications.acknowledge(g, elem)
		}
		tx.credited()
	}
	return nil
}

// onIndicate passes indications to the receiver of their data channel.
func (c *Conn) onIndicate(msg []byte) error {
	m, err := protocol.DecodeBufferRDMAIndicate(msg)
	if err != nil {
		return controlViolation(err, "BufferRDMAIndicate")
	}
	channel := int(m.At(0).Pool / uint32(c.cfg.MaxPools))
	if channel >= len(c.channels) {
		return controlViolation(ErrPool, "indication of pool %d", m.At(0).Pool)
	}
	first := c.firstRef(channel + 1)
	events := c.control.events[:0]
	for i := range m.Len() {
		x := m.At(i)
		class := x.Pool - first
		if class >= uint32(c.cfg.MaxPools) {
			return controlViolation(ErrPool, "indication of pool %d in a message about data channel %d", x.Pool, channel+1)
		}
		events = append(events, rxEvent{kind: rxIndicated, class: class, elem: x.Element, length: x.Length,
			last: i == m.Len()-1})
	}
	c.control.events = events
	return c.channels[channel].rx.indicated(events)
}

// onGet hears that the peer asks for another pool.
func (c *Conn) onGet(msg []byte) error {
	m, err := protocol.DecodeBufferRecvPoolGet(msg)
	if err != nil {
		return controlViolation(err, "BufferRecvPoolGet")
	}
	if int(m.Channel) > len(c.channels) {
		return controlViolation(ErrNoChannel, "BufferRecvPoolGet for data channel %d of %d", m.Channel, len(c.channels))
	}
	size := int(min(m.ElementSize, MaxElementSize+1)) // no more is lent
	return c.pools.step(bufpool.Event{Kind: bufpool.Get, Channel: int(m.Channel), Size: size, Elements: int(m.Elements)})
}

// onFlush stops the use of pools: the peer takes back some of its own, or gives
// back some of ours.
func (c *Conn) onFlush(msg []byte) error {
	m, err := protocol.DecodeBufferPoolFlushRequest(msg)
	if err != nil {
		return controlViolation(err, "BufferPoolFlushRequest")
	}
	refs := make([]uint32, m.Len())
	for i := range refs {
		refs[i] = m.Pool(i)
	}
	err = c.pools.step(bufpool.Event{Kind: bufpool.Flush, Transaction: m.TransactionContext, Refs: refs})
	if err != nil {
		return controlViolation(err, "BufferPoolFlushRequest")
	}
	return nil
}

// onFlushed hears that the peer has done what this side's flush asked for.
func (c *Conn) onFlushed(msg []byte) error {
	m, err := protocol.DecodeBufferPoolFlushReply(msg)
	if err == nil {
		err = c.pools.step(bufpool.Event{Kind: bufpool.FlushReply, Transaction: m.TransactionContext})
	}
	if err != nil {
		return controlViolation(err, "BufferPoolFlushReply")
	}
	return nil
}

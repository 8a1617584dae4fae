package messaging

import (
	"cmp"
	"errors"
	"net"
	"slices"
	"time"

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
		case protocol.FuncBufferRecvPoolGet, protocol.FuncBufferPoolFlushRequest, protocol.FuncBufferPoolFlushReply, protocol.FuncBufferRDMAIndicate:
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
		if err := c.borrowed.add(p); err != nil {
			return err
		}
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
		g := c.borrowed.find(r.Pool())
		if g == nil {
			return controlViolation(ErrPool, "update of pool %d", r.Pool())
		}
		for i := range r.Len() {
			elem := r.Element(i)
			if err := g.Return(uint32(elem)); err != nil {
				return controlViolation(err, "update of pool %d", r.Pool())
			}
			g.sender.acknowledge(g, elem)
		}
		g.sender.credited()
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
	letters := c.control.letters[:0]
	for i := range m.Len() {
		x := m.At(i)
		class := x.Pool - first
		if class >= uint32(c.cfg.MaxPools) {
			return controlViolation(ErrPool, "indication of pool %d in a message about data channel %d", x.Pool, channel+1)
		}
		letters = append(letters, letter{kind: letterIndicated, class: class, elem: x.Element, length: x.Length, last: i == m.Len()-1})
	}
	c.control.letters = letters
	return c.channels[channel].rx.indicated(letters)
}

// onGet passes a request for another pool to the keeper. One that comes while
// others wait is ignored, as one that cannot be granted is.
func (c *Conn) onGet(msg []byte) error {
	m, err := protocol.DecodeBufferRecvPoolGet(msg)
	if err != nil {
		return controlViolation(err, "BufferRecvPoolGet")
	}
	if int(m.Channel) > len(c.channels) {
		return controlViolation(ErrNoChannel, "BufferRecvPoolGet for data channel %d of %d", m.Channel, len(c.channels))
	}
	select {
	case c.keeper.gets <- m:
	default:
		c.keeper.refused.Add(1)
	}
	return nil
}

// onFlush stops the use of pools: the peer takes back some of its own, or gives
// back some of ours.
func (c *Conn) onFlush(msg []byte) error {
	m, err := protocol.DecodeBufferPoolFlushRequest(msg)
	if err != nil {
		return controlViolation(err, "BufferPoolFlushRequest")
	}
	if !c.keeper.owesReply.CompareAndSwap(false, true) {
		return controlViolation(ErrTooManyFlushes, "transaction %#x", m.TransactionContext)
	}
	var theirs, ours []uint32
	for i := range m.Len() {
		if ref := m.Pool(i); ref&protocol.FlushGiveBack != 0 {
			ours = append(ours, ref&^protocol.FlushGiveBack)
		} else {
			theirs = append(theirs, ref)
		}
	}
	pools, err := c.lending.find(ours)
	if err != nil {
		return err
	}
	now := time.Now()
	var wait time.Duration
	// One more than there are pools of theirs: for ours, all together.
	reply := &retirement{then: func() error {
		return c.later(wait-time.Since(now), func() error {
			c.keeper.owesReply.Store(false) // before the reply, upon which the peer may ask again
			return c.control.flushed(m.TransactionContext)
		})
	}}
	reply.left.Store(int32(len(theirs) + 1))
	closed, err := c.borrowed.close(theirs, reply)
	if err != nil {
		return err
	}
	if wait = c.borrowed.cost(closed, now); wait > 0 {
		c.borrowed.held.Add(1)
	}
	c.lending.retire(pools, reply.done)
	return nil
}

// later does something after a while, unless the session ends before that.
func (c *Conn) later(wait time.Duration, do func() error) error {
	if wait <= 0 {
		return do()
	}
	c.background.Go(func() {
		if !c.sleep(wait) {
			return
		}
		if err := do(); err != nil && !errors.Is(err, net.ErrClosed) {
			c.end(err)
		}
	})
	return nil
}

// onFlushed hears that the peer has done what this side's flush asked for.
func (c *Conn) onFlushed(msg []byte) error {
	m, err := protocol.DecodeBufferPoolFlushReply(msg)
	if err != nil {
		return controlViolation(err, "BufferPoolFlushReply")
	}
	// Transactions count from 1.
	if m.TransactionContext == 0 || !c.keeper.awaits.CompareAndSwap(m.TransactionContext, 0) {
		return controlViolation(ErrReply, "BufferPoolFlushReply, transaction %#x", m.TransactionContext)
	}
	c.borrowed.taken()
	c.keeper.replied <- struct{}{} // never full: one flush is out at a time
	return nil
}

package flowmodel

import (
	"slices"

	"github.com/splitnic/splitnic/bufpool"
)

// receive is one step of the receiver. Other workers may run between two steps.
func (c *channel) receive() bool {
	first, second := c.postAgain, c.giveBack
	if c.m.rules.updateFirst {
		first, second = second, first
	}
	switch {
	case first(), second():
	case c.blocked:
		c.blocked, c.returns = false, true
	case len(c.reading) > 0:
		if !c.drained && !c.m.rules.noDrain {
			if len(c.cq) > 0 {
				c.take()
			} else {
				c.drained = true
			}
			return true
		}
		l := c.reading[0]
		c.reading = c.reading[1:]
		c.read(l)
		if c.returns = len(c.reading) == 0; c.returns {
			c.revokeGathered()
		}
	case len(c.queue) > 0 && (len(c.cq) == 0 || c.m.one(2)):
		c.reading, c.queue, c.drained = c.queue, nil, false
		c.queued, c.sent = false, c.sentByPeer
	case len(c.cq) > 0:
		c.take()
	default:
		return false
	}
	return true
}

// postAgain posts used receives again.
func (c *channel) postAgain() bool {
	if c.repost == 0 {
		return false
	}
	c.receives += c.repost
	c.repost = 0
	return true
}

// take handles a batch of completions.
func (c *channel) take() {
	n := 1 + c.m.r.IntN(min(len(c.cq), 4))
	c.repost, c.returns = n, true
	for _, t := range c.cq[:n] {
		switch t.op {
		case opSend:
			c.message(t)
		case opSendInv:
			c.invalidated(t.pool)
		case opSendKey:
			c.keyed(t)
		default:
			c.consume(t.pool, t.elem)
		}
	}
	c.revokeGathered()
	c.cq = slices.Clone(c.cq[n:])
}

// consume takes a frame from an element that the peer has indicated.
func (c *channel) consume(p *pool, elem int) {
	if c.pools[int(p.ref)-c.number*c.m.shape.maxPools] != p {
		c.m.fail("%s: a transfer into pool %d, which is not lent", c.s.name, p.ref)
		return
	}
	if p.written[elem] == 0 {
		c.m.fail("%s: element %d of pool %d is indicated and was not written", c.s.name, elem, p.ref)
	}
	if p.guard == oneTouch {
		c.gather(p, elem)
		return
	}
	c.use(p, elem)
	c.arrive(p.written[elem])
	p.written[elem] = 0
}

// use moves an element through the states that it has while its frame is handed to the port.
func (c *channel) use(p *pool, elem int) {
	if _, err := p.elements.Consume(elem, 1); err != nil {
		c.m.fail("%s: pool %d: %v", c.s.name, p.ref, err)
		return
	}
	p.move(elem, inFlight, consumed)
	p.elements.Release(elem)
	p.move(elem, consumed, returning)
	if c.m.rules.eager {
		c.elements.Indicated(p.local, true)
	}
}

// arrive is the port: it checks the order of frames.
func (c *channel) arrive(frame uint64) {
	if frame <= c.latest || (frame != c.latest+1 && !c.m.mode.Lossy()) {
		c.m.fail("%s: frame %d arrives after frame %d", c.s.name, frame, c.latest)
	}
	c.latest = frame
	c.arrived++
}

// message handles a message of one of the send modes.
func (c *channel) message(t transfer) {
	ahead := int64(t.number - c.expected)
	switch {
	case ahead != 0 && !c.m.mode.Lossy():
		c.m.fail("%s: message %d, %d was expected", c.s.name, t.number, c.expected)
		return
	case ahead < 0:
		return // late
	}
	c.lose(ahead)
	c.use(c.only(), int(t.number)%c.only().elements.Len())
	c.expected++
	c.arrive(t.frame)
}

// only returns the only pool of a channel in the send modes.
func (c *channel) only() *pool { return c.s.made[c.localPools[0]] }

func (c *channel) lose(n int64) {
	p := c.only()
	if n > int64(p.elements.Len()) {
		c.m.fail("%s: %d messages are lost, of %d", c.s.name, n, p.elements.Len())
		return
	}
	for ; n > 0; n-- {
		c.use(p, int(c.expected)%p.elements.Len())
		c.expected++
	}
}

func (c *channel) read(l rxEvent) {
	switch l.kind {
	case rxIndicated:
		c.consume(l.pool, l.elem)
		gathered := c.batches.Gathered()
		switch n := len(gathered); {
		case c.m.rules.noAcknowledge:
		case l.pool.guard != oneTouch:
			c.elements.Indicated(l.pool.local, l.last)
		case n > 0:
			gathered[n-1].Indicated, gathered[n-1].Last = true, l.last
		}
	case rxAdopt:
		c.adopt(l.pool)
		if !c.s.release(l.pool.local) {
			c.s.step(bufpool.Event{Did: bufpool.Adopt, Local: l.pool.local})
		}
	case rxDrain:
		c.revokeGathered()
		if l.pool.guard == oneTouch && l.pool.at[consumed] > 0 && !c.m.rules.hastyRetire {
			// The pool is forgotten when its windows are bound again.
			l.pool.retiring = true
			c.pools[int(l.pool.ref)-c.number*c.m.shape.maxPools] = nil
			return
		}
		c.forget(l.pool)
	case rxRevoked:
		c.revoked(l.batch)
	case rxRebound:
		c.rebound(l.batch)
	case rxSent:
		if ahead := int64(c.sent - c.expected); ahead > 0 {
			c.lose(ahead)
			if c.m.rules.hastyReturn {
				c.elements.Indicated(c.only().local, true)
			}
		}
	}
}

// forget ends the use of a pool.
func (c *channel) forget(p *pool) {
	for c.elements.Retire(p.local) {
		c.update(p)
	}
	c.pools[int(p.ref)-c.number*c.m.shape.maxPools] = nil
	c.localPools = slices.DeleteFunc(c.localPools, func(o *bufpool.Local) bool { return o == p.local })
	if c.m.mode.Immediate() {
		c.spare += len(p.where)
	}
	c.elements.Forget(p.local)
	drained := bufpool.Event{Did: bufpool.Drain, Local: p.local}
	if c.s.invalidates() && c.m.rules.bothInvalidate {
		c.requests = append(c.requests, sqRequest{kind: sqUnbind, pool: p})
	}
	if c.s.invalidates() && c.m.rules.earlyDispose {
		c.s.step(bufpool.Event{Kind: bufpool.Invalidated, Local: p.local})
	}
	c.s.step(drained)
}

// adopt takes a pool into service.
func (c *channel) adopt(p *pool) {
	c.pools[int(p.ref)-c.number*c.m.shape.maxPools] = p
	c.localPools = append(c.localPools, p.local)
	switch {
	case c.m.mode.Indicated():
	case c.m.mode.Sends():
		c.receives += len(p.where)
	default:
		n := len(p.where) - c.spare
		c.spare = max(-n, 0)
		c.receives += max(n, 0)
	}
}

// giveBack returns elements if this is due. Sometimes there is no slot to send the update from.
func (c *channel) giveBack() bool {
	if !c.returns {
		return false
	}
	if !c.elements.Due(c.localPools) {
		c.returns = false
		return true
	}
	if c.m.flowing && c.m.one(8) {
		c.blocked, c.returns = true, false
		return true
	}
	if !c.update(nil) {
		c.returns = false
	}
	return true
}

// update sends an update, if there is something to return. For a pool that ends it counts as due.
func (c *channel) update(ends *pool) bool {
	msg := message{kind: msgUpdate, channel: c.number}
	returns := c.elements.Next(c.localPools, nil)
	for _, r := range returns {
		p := c.s.made[c.s.local(r.Pool)]
		if p == nil {
			c.m.fail("%s: an update of pool %d, which is deregistered", c.s.name, r.Pool)
			return false
		}
		if c.m.rules.partialUpdates && len(r.Elements) < len(p.elements.Returning()) {
			return false
		}
		if p.elements.Due() || p == ends {
			msg.due = append(msg.due, p)
		}
		msg.returns = append(msg.returns, returned{p, slices.Clone(r.Elements)})
	}
	if len(returns) == 0 {
		return false
	}
	for _, r := range msg.returns {
		for _, e := range r.elems {
			r.pool.move(int(e), returning, inUpdate)
		}
	}
	c.elements.Sent(c.localPools, returns)
	msg.forced = len(msg.due) == 0
	c.s.send(msg)
	return true
}

package flowmodel

import (
	"slices"

	"github.com/splitnic/splitnic/bufpool"
)

// guard is how a side protects the pools that it lends, in addition to their registration.
type guard uint8

const (
	region   guard = iota // no further protection
	around                // a window around each pool
	oneTouch              // a window around each element, which can be written once
	guards
)

// batchLength is the largest number of elements in one batch.
const batchLength = 4

// window is a memory window as the device sees it.
type window struct {
	bound bool
	key   int // key of the last bind
	best  int // the highest key of all binds
}

// bind is carried out by the device of the side that lends the pool.
func (w *window) bind(m *model, ref uint32, elem int) {
	if w.bound {
		m.fail("window %d of pool %d is bound twice", elem, ref)
		return
	}
	if !m.rules.staleKey || w.best == 0 {
		w.key++
	}
	if w.key <= w.best {
		m.fail("window %d of pool %d is bound with a key that was good before", elem, ref)
	}
	w.bound, w.best = true, w.key
}

// invalidate is carried out by the device of the side that lends the pool, too, even if the other
// side requests it. With Soft-RoCE, invalidating a window that is not bound crashes the machine.
func (w *window) invalidate(m *model, ref uint32, elem int) {
	if !w.bound {
		m.fail("window %d of pool %d is invalidated and is not bound", elem, ref)
	}
	w.bound = false
}

// makeWindows makes the windows of a pool. They are not bound.
func (p *pool) makeWindows(g guard) {
	switch p.guard = g; g {
	case around:
		p.windows = make([]window, 1)
	case oneTouch:
		p.windows = make([]window, len(p.where))
	default:
	}
	for i := range p.windows {
		p.m.keys += 1 << 20
		p.windows[i].key = p.m.keys
	}
}

// window returns the window that protects an element, or nil if there is none.
func (p *pool) window(elem int) *window {
	switch p.guard {
	case around:
		return &p.windows[0]
	case oneTouch:
		return &p.windows[elem]
	default:
		return nil
	}
}

// learn gives the initiator the keys of a pool's windows.
func (p *pool) learn() {
	p.keys = p.keys[:0]
	for i := range p.windows {
		p.keys = append(p.keys, p.windows[i].key)
	}
}

// key returns the key with which the initiator writes to an element.
func (p *pool) key(elem int) int {
	switch p.guard {
	case around:
		return p.keys[0]
	case oneTouch:
		return p.keys[elem]
	default:
		return 0
	}
}

// takes reports whether the device accepts a write to an element with a key.
func (p *pool) takes(elem, key int) bool {
	w := p.window(elem)
	return !p.gone && (w == nil || w.bound && w.key == key)
}

// relend is called when an element is returned: the initiator computes its next key.
func (p *pool) relend(elem int) {
	if p.guard != oneTouch {
		return
	}
	p.keys[elem]++
	if !p.stopping && !p.takes(elem, p.keys[elem]) {
		p.m.fail("element %d of pool %d goes back, and cannot be written", elem, p.ref)
	}
}

// invalidates reports whether the peer invalidates the windows around this side's pools.
func (s *side) invalidates() bool { return s.guard == around && s.m.agreed }

// sendsKeys reports whether this side sends the keys of requested pools behind their binds.
func (s *side) sendsKeys() bool { return s.guard == around && s.m.sends }

func (s *side) sendsKey(p *pool) bool { return p.local.KeyFollows(s.sendsKeys()) }

// sendKeys is one step of sending keys, one pool after the other.
func (s *side) sendKeys() bool {
	switch {
	case len(s.unsent) == 0:
		return false
	case s.telling && s.heard:
		p := s.unsent[0]
		s.unsent = s.unsent[1:]
		s.telling, s.heard = false, false
		s.step(bufpool.Event{Did: bufpool.SendKeys, Local: p.local})
		return true
	case s.telling || s.mine == 4:
		return false
	}
	s.telling = true
	s.mine++
	s.send(message{kind: msgRequest, request: requestKeys, pools: s.unsent[:1:1]})
	return true
}

// sqRequest is a task for a sender other than frames.
type sqRequest struct {
	kind  sqKind
	pool  *pool
	batch *bufpool.Batch
	next  int
}

type sqKind uint8

const (
	sqBind sqKind = iota
	sqBindSend
	sqUnbind
	sqInvalidate
	sqRevoke
	sqRebind
)

// perform posts requests as far as there is room, and reports whether it has posted any.
func (c *channel) perform() bool {
	posted, n := c.posted, len(c.requests)
	for len(c.requests) > 0 && c.performOne(&c.requests[0]) {
		c.requests = slices.Clone(c.requests[1:])
	}
	return c.posted != posted || len(c.requests) != n
}

func (c *channel) performOne(e *sqRequest) bool {
	switch e.kind {
	case sqInvalidate:
		return c.invalidate(e.pool)
	case sqBindSend:
		return c.bindSend(e.pool)
	default:
	}
	o, n := opBind, 0
	if e.batch != nil {
		n = len(e.batch.Written)
	}
	if e.kind == sqUnbind || e.kind == sqRevoke {
		o = opInvalidate
	}
	if e.pool != nil {
		n = len(e.pool.windows)
	}
	for ; e.next < n; e.next++ {
		room := c.room()
		if room <= 0 {
			return false
		}
		t := transfer{op: o, pool: e.pool, elem: e.next}
		if e.pool == nil {
			w := &e.batch.Written[e.next]
			t.pool, t.elem = c.s.made[w.Local], w.Element
		}
		if e.next == n-1 {
			t.land = c.follows(*e)
		}
		t.signal = room == 1 || t.land != nil
		c.post(t)
	}
	return true
}

// follows returns the function to call when a request's work requests have completed.
func (c *channel) follows(e sqRequest) func() {
	switch e.kind {
	case sqRevoke:
		return func() { c.queue = append(c.queue, rxEvent{kind: rxRevoked, batch: e.batch}) }
	case sqRebind:
		return func() { c.queue = append(c.queue, rxEvent{kind: rxRebound, batch: e.batch}) }
	case sqUnbind:
		if c.s.invalidates() { // a broken rule: nothing waits for the completion
			return func() {}
		}
		return func() { c.s.step(bufpool.Event{Did: bufpool.Unbind, Local: e.pool.local}) }
	default:
		if c.m.rules.unboundOffer {
			return func() {}
		}
		return func() { c.s.step(bufpool.Event{Did: bufpool.Bind, Local: e.pool.local}) }
	}
}

// post posts a work request that is not a transfer.
func (c *channel) post(t transfer) {
	c.posted++
	t.seq = c.posted
	if t.signal {
		c.signaled = t.seq
	}
	c.net = append(c.net, t)
	c.inFlight = append(c.inFlight, t)
}

// invalidate sends the message that invalidates the window around a pool of the peer, once. It
// reports whether there was room for it.
func (c *channel) invalidate(p *pool) bool {
	if !p.remote.ToInvalidate() {
		return true
	}
	if c.room() <= 0 {
		return false
	}
	p.remote.Invalidating()
	c.post(transfer{op: opSendInv, pool: p, signal: true})
	return true
}

// bindSend posts the bind of a pool's window, followed by the message with its key. It reports
// whether there was room for both.
func (c *channel) bindSend(p *pool) bool {
	if c.room() < 2 {
		return false
	}
	c.m.sent = append(c.m.sent, p.windows[0].key+1)
	posts := []transfer{{op: opBind, pool: p}, {op: opSendKey, pool: p, key: len(c.m.sent)}}
	if c.m.rules.keyBeforeBind {
		slices.Reverse(posts)
	}
	posts[1].signal = true
	for _, t := range posts {
		c.post(t)
	}
	return true
}

// keyed handles a key that the peer has sent. It first posts the receive of the message again.
func (c *channel) keyed(t transfer) {
	c.receives++
	c.repost--
	channel := c.number + 1
	if c.m.rules.keyElsewhere {
		channel = 1
	}
	c.s.step(bufpool.Event{Kind: bufpool.Keyed, Channel: channel, Key: uint32(t.key)})
}

// gather takes an element without reading it.
func (c *channel) gather(p *pool, elem int) {
	if _, err := p.elements.Consume(elem, 1); err != nil {
		c.m.fail("%s: pool %d: %v", c.s.name, p.ref, err)
		return
	}
	p.move(elem, inFlight, consumed)
	c.taken++
	if len(c.batches.Gathered()) == batchLength {
		c.revokeGathered()
	}
	c.batches.Gather(bufpool.Written{Local: p.local, Element: elem})
}

// revokeGathered requests that the windows of the gathered elements be invalidated.
func (c *channel) revokeGathered() {
	b := c.batches.Revoke()
	switch {
	case b == nil:
	case c.m.rules.noRevoke:
		c.queue = append(c.queue, rxEvent{kind: rxRevoked, batch: b})
	default:
		c.requests = append(c.requests, sqRequest{kind: sqRevoke, batch: b})
	}
}

// look delivers the frames in elements that can no longer be written.
func (c *channel) look(b *bufpool.Batch) {
	c.batches.Revoked()
	for _, w := range b.Written {
		p := c.s.made[w.Local]
		if p.window(w.Element).bound {
			c.m.fail("%s: element %d of pool %d is looked at while the peer can write to it", c.s.name, w.Element, p.ref)
		}
		c.arrive(p.written[w.Element])
		p.written[w.Element] = 0
	}
}

// revoked is called when the windows of a batch are invalid.
func (c *channel) revoked(b *bufpool.Batch) {
	if !c.m.rules.lateLook {
		c.look(b)
	}
	if c.m.rules.unboundReturn {
		c.rebound(b)
		return
	}
	c.requests = append(c.requests, sqRequest{kind: sqRebind, batch: b})
}

// rebound is called when the windows of a batch are bound again.
func (c *channel) rebound(b *bufpool.Batch) {
	if c.m.rules.lateLook {
		c.look(b)
	}
	b.Rebound(&c.elements)
	for _, w := range b.Written {
		c.s.made[w.Local].move(w.Element, consumed, returning)
	}
	for _, w := range b.Written {
		if p := c.s.made[w.Local]; p.retiring && p.at[consumed] == 0 {
			p.retiring = false
			c.forget(p)
		}
	}
	c.batches.Put(b)
}

// invalidated is called when a message of the peer has invalidated a window.
func (c *channel) invalidated(p *pool) {
	c.s.step(bufpool.Event{Kind: bufpool.Invalidated, Local: p.local})
}

// abandoned checks the state if the session ended now: the frames that were taken and not delivered
// must be in batches, and be later than all others.
func (c *channel) abandoned() {
	unrevoked, next := 0, c.latest
	gathered := len(c.batches.Gathered())
	for i, b := range c.batches.Abandoned() {
		if c.m.rules.forgetful && i < len(c.batches.Abandoned())-min(gathered, 1) {
			continue
		}
		for _, w := range b.Written {
			frame := c.s.made[w.Local].written[w.Element]
			if frame <= next {
				c.m.fail("%s: at the end, frame %d is not delivered, and frame %d is", c.s.name, frame, next)
			}
			next = frame
		}
		unrevoked += len(b.Written)
	}
	if c.s.guard == oneTouch && c.taken != c.arrived+uint64(unrevoked) {
		c.m.fail("%s: at the end, %d frames were taken, %d delivered, %d not revoked", c.s.name, c.taken, c.arrived, unrevoked)
	}
}

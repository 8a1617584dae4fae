package flowmodel

import (
	"slices"

	"github.com/splitnic/splitnic/bufpool"
)

// guard is how a side protects the pools that it lends, on top of their
// registration.
type guard uint8

const (
	region   guard = iota // by nothing
	around                // by a window around each pool
	oneTouch              // by a window around each element, which can be written once
	guards
)

// batchLength is how many elements travel in one batch at most.
const batchLength = 4

// window is a memory window as the device sees it.
type window struct {
	bound bool
	key   int // of the latest bind
	best  int // the highest that it was ever bound with
}

// bind is carried out by the device of who lends the pool.
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

// invalidate is carried out by that device too, whoever asks for it. One that is
// not bound takes a Soft-RoCE machine down.
func (w *window) invalidate(m *model, ref uint32, elem int) {
	if !w.bound {
		m.fail("window %d of pool %d is invalidated and is not bound", elem, ref)
	}
	w.bound = false
}

// makeWindows makes those of a pool, not bound.
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

// window is what an element is behind, nil if it is nothing.
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

// learn has the initiator know the keys of a pool's windows.
func (p *pool) learn() {
	p.keys = p.keys[:0]
	for i := range p.windows {
		p.keys = append(p.keys, p.windows[i].key)
	}
}

// key is the one that the initiator writes to an element with.
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

// takes reports whether the device takes a write to an element with a key.
func (p *pool) takes(elem, key int) bool {
	w := p.window(elem)
	return !p.gone && (w == nil || w.bound && w.key == key)
}

// relend is an element's return: the initiator counts its key.
func (p *pool) relend(elem int) {
	if p.guard != oneTouch {
		return
	}
	p.keys[elem]++
	if !p.stopping && !p.takes(elem, p.keys[elem]) {
		p.m.fail("element %d of pool %d goes back, and cannot be written", elem, p.ref)
	}
}

// invalidates reports whether the peer invalidates the window around a pool of
// this side's.
func (s *side) invalidates() bool { return s.guard == around && s.m.agreed }

// sendsKeys reports whether this side sends the keys of its pools behind their binds,
// of those that were asked for.
func (s *side) sendsKeys() bool { return s.guard == around && s.m.sends }

func (s *side) sendsKey(p *pool) bool { return p.local.KeyFollows(s.sendsKeys()) }

// tell is the part of who tells keys, pool by pool.
func (s *side) sendKeys() bool {
	switch {
	case len(s.unsent) == 0:
		return false
	case s.telling && s.heard:
		p := s.unsent[0]
		s.unsent = s.unsent[1:]
		s.telling, s.heard = false, false
		s.step(bufpool.Event{Kind: bufpool.KeysSent, Local: p.local})
		return true
	case s.telling || s.mine == 4:
		return false
	}
	s.telling = true
	s.mine++
	s.send(message{kind: msgRequest, request: requestKeys, pools: s.unsent[:1:1]})
	return true
}

// sqRequest is something for a sender to do besides frames.
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

// perform posts requests as far as there is room, and reports whether it has
// posted any.
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

// follows is what follows when a request's work requests have completed.
func (c *channel) follows(e sqRequest) func() {
	switch e.kind {
	case sqRevoke:
		return func() { c.queue = append(c.queue, rxEvent{kind: rxRevoked, batch: e.batch}) }
	case sqRebind:
		return func() { c.queue = append(c.queue, rxEvent{kind: rxRebound, batch: e.batch}) }
	case sqUnbind:
		if c.s.invalidates() { // a broken rule: nobody waits for it
			return func() {}
		}
		return func() { c.s.step(bufpool.Event{Kind: bufpool.Unbound, Local: e.pool.local}) }
	default:
		if c.m.rules.unboundOffer {
			return func() {}
		}
		return func() { c.s.step(bufpool.Event{Kind: bufpool.Bound, Local: e.pool.local}) }
	}
}

// post posts a work request that is no transfer.
func (c *channel) post(t transfer) {
	c.posted++
	t.seq = c.posted
	if t.signal {
		c.signaled = t.seq
	}
	c.net = append(c.net, t)
	c.inFlight = append(c.inFlight, t)
}

// invalidate sends the peer the message that invalidates the window around a
// pool of its, once, and reports whether there was room for it.
func (c *channel) invalidate(p *pool) bool {
	if !p.remote.Invalidate || p.remote.Invalidated {
		return true
	}
	if c.room() <= 0 {
		return false
	}
	p.remote.Invalidated = true
	c.post(transfer{op: opSendInv, pool: p, signal: true})
	return true
}

// bindSend posts the bind of a pool's window and the message with its key behind it,
// and reports whether there was room for both.
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

// keyed hears a key that the peer has sent. The receive of the message is posted
// again first.
func (c *channel) keyed(t transfer) {
	c.receives++
	c.repost--
	channel := c.number + 1
	if c.m.rules.keyElsewhere {
		channel = 1
	}
	c.s.step(bufpool.Event{Kind: bufpool.Keyed, Channel: channel, Key: uint32(t.key)})
}

// gather takes an element without looking at it.
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

// revokeGathered has the windows invalidated of what was gathered.
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

// look delivers what lies in elements that nobody can write any more.
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

// revoked hears that windows are invalid.
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

// rebound hears that windows are bound again.
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

// invalidated hears that a message of the peer's has invalidated a window.
func (c *channel) invalidated(p *pool) {
	c.s.step(bufpool.Event{Kind: bufpool.Invalidated, Local: p.local})
}

// abandoned checks what a session leaves that ends here and now: the frames that
// were taken and not delivered lie in batches, and come after all others.
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

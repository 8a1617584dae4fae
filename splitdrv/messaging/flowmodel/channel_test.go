package flowmodel

import (
	"slices"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/protocol"
)

// channel is one data channel of a side: its sender, its receiver, and the sender's work requests
// on the network.
type channel struct {
	m      *model
	s      *side
	number int

	// Fields of the sender. Sequence numbers count its work requests.
	remotePools []*pool
	held        int // length of the frame that has no credit yet
	net         []transfer
	executed    int // last sequence number carried out
	visible     int // last sequence number whose completion can be polled
	completed   int
	posted      int
	signaled    int
	inFlight    []transfer
	pending     []transfer
	indicated   uint64
	acked       uint64
	serialised  bool
	next        uint64
	framesSent  uint64
	notes       []release
	releasing   []release
	requests    []sqRequest

	// Fields of the receiver.
	cq         []transfer
	receives   int // number of posted receives
	queue      []rxEvent
	reading    []rxEvent
	drained    bool
	pools      []*pool // by reference
	localPools []*bufpool.Local
	spare      int
	expected   uint64
	sentByPeer uint64
	sent       uint64 // sentByPeer when the queue was taken
	queued     bool
	repost     int
	returns    bool // elements may have to be returned
	blocked    bool // no slot was free to send an update from
	arrived    uint64
	latest     uint64
	elements   bufpool.Returns // elements to return
	batches    bufpool.Batches // of one-touch pools
	taken      uint64          // number of transfers gathered

	// Numbers of messages that the peer has not processed.
	forced    int
	indicates int
}

type op uint8

const (
	opWriteImm op = iota
	opWrite
	opSend
	opDrain
	opInvalidate // invalidates a window of this side
	opBind       // binds a window of this side
	opSendInv    // a message that invalidates a window of the peer
	opSendKey    // a message with the key of a window
)

// transfer is a work request, and its completion.
type transfer struct {
	op     op
	seq    int
	signal bool
	pool   *pool
	elem   int
	frame  uint64
	number uint64 // opSend: the sequence number
	key    int    // key of a write
	land   func() // called when the request has completed
}

type release struct {
	pool *pool
	last bool // the peer takes the pool back, so its window is invalidated, too
}

type rxKind uint8

const (
	rxIndicated rxKind = iota
	rxAdopt
	rxDrain
	rxSent
	rxRevoked
	rxRebound
)

type rxEvent struct {
	kind  rxKind
	pool  *pool
	elem  int
	last  bool
	batch *bufpool.Batch
}

// deliver carries out the sender's oldest work request at the peer.
func (c *channel) deliver() bool {
	if len(c.net) == 0 || c.s.peer.dead {
		return false
	}
	t := c.net[0]
	c.net = c.net[1:]
	c.executed = t.seq
	far := c.s.peer.channels[c.number]
	switch t.op {
	case opDrain:
		return true
	case opBind:
		t.pool.windows[t.elem].bind(c.m, t.pool.ref, t.elem)
		return true
	case opInvalidate:
		t.pool.windows[t.elem].invalidate(c.m, t.pool.ref, t.elem)
		return true
	case opSendInv:
		t.pool.windows[0].invalidate(c.m, t.pool.ref, 0)
	default:
	}
	lossy := c.m.mode.Lossy()
	if lossy && c.m.one(6) {
		return true // lost
	}
	if t.op == opWrite || t.op == opWriteImm {
		switch p := t.pool; {
		case p.gone:
			c.m.fail("%s: a write to pool %d, which is deregistered", c.s.name, p.ref)
		case !p.takes(t.elem, t.key):
			c.m.fail("%s: the device refuses a write to element %d of pool %d with key %#x: %+v", c.s.name, t.elem, p.ref, t.key,
				*p.window(t.elem))
		case p.where[t.elem] != inFlight || p.written[t.elem] != 0:
			c.m.fail("%s: a write to element %d of pool %d, which is at %d", c.s.name, t.elem, p.ref, p.where[t.elem])
		default:
			p.written[t.elem] = t.frame
		}
	}
	if t.op == opWrite {
		return true
	}
	if far.receives == 0 {
		if !lossy {
			c.m.fail("%s: no receive is posted for a transfer on channel %d", c.s.name, c.number)
		}
		return true
	}
	far.receives--
	far.cq = append(far.cq, t)
	return true
}

// complete makes more completions visible to the sender.
func (c *channel) complete() bool {
	if c.visible == c.executed {
		return false
	}
	if c.visible = c.executed; c.m.flowing && c.m.one(2) {
		c.visible = max(c.completed, c.visible-c.m.r.IntN(3))
	}
	return true
}

func (c *channel) window() int {
	if c.m.mode.Indicated() {
		return protocol.IndicatesPerChannel
	}
	return 1
}

func (c *channel) unacknowledged() int { return int(c.indicated - c.acked) }

func (c *channel) room() int { return c.m.shape.depth - (c.posted - c.completed) - len(c.pending) }

func (c *channel) dry() bool {
	for _, p := range c.remotePools {
		if p.at[available] > 0 {
			return false
		}
	}
	return true
}

// revoke takes a pool away from the sender, and notifies it.
func (c *channel) revoke(r release) {
	r.pool.stopping = true
	c.remotePools = slices.DeleteFunc(c.remotePools, func(o *pool) bool { return o == r.pool })
	c.notes = append(c.notes, r)
}

// transmit is one round of the sender.
func (c *channel) transmit() bool {
	did := len(c.notes) > 0
	c.releasing = append(c.releasing, c.notes...)
	c.notes = nil
	if c.settle() {
		did = true
	}
	if c.perform() {
		did = true
	}
	return c.write() || did
}

// write posts some frames as a batch, and reports whether it has posted any.
func (c *channel) write() bool {
	if c.s.phase >= pausing {
		return false
	}
	last := c.posted
	for n := c.m.r.IntN(batch + 1); n > 0 && !c.serialised && c.room() > 0; n-- {
		if c.held == 0 {
			if !c.m.flowing {
				break
			}
			c.held = frameLengths[c.m.r.IntN(len(frameLengths))]
		}
		if !c.add() {
			break
		}
	}
	if c.posted == last {
		return false
	}
	if t := &c.net[len(c.net)-1]; t.op == opWrite && !t.signal {
		t.signal = true
		c.signaled = t.seq
	}
	return true
}

// add posts the held frame, if there is a credit.
func (c *channel) add() bool {
	need := c.held
	if c.m.mode.Sends() {
		need += protocol.SendDataOverhead
	}
	fitting := false
	for _, p := range c.remotePools {
		if p.size < need {
			continue
		}
		fitting = true
		if p.remote.Credits == nil {
			c.m.fail("%s: pool %d is used, which was refused or is closed", c.s.name, p.ref)
			return false
		}
		e, ok := p.remote.Take()
		if !ok {
			continue
		}
		elem := int(e)
		p.move(elem, available, inFlight)
		c.framesSent++
		c.posted++
		t := transfer{op: opWrite, seq: c.posted, pool: p, elem: elem, frame: c.framesSent, key: p.key(elem)}
		switch {
		case c.m.mode.Sends():
			t.op, t.number = opSend, c.next
			if elem != int(c.next%uint64(len(p.where))) {
				c.m.fail("%s: message %d uses element %d", c.s.name, c.next, elem)
			}
			c.next++
		case c.m.mode.Immediate() && protocol.CanImm(p.ref, uint32(elem), c.held):
			t.op = opWriteImm
		default:
			c.serialised = c.m.mode.Immediate() && !c.m.rules.overtaken
		}
		if c.posted-c.signaled >= c.m.shape.signalEvery {
			t.signal = true
			c.signaled = c.posted
		}
		p.remote.Sent(uint32(c.posted))
		c.held = 0
		c.net = append(c.net, t)
		if c.m.rules.earlyIndicate && t.op == opWrite {
			t.op = opDrain // its completion has no effect
			c.pending = append(c.pending, transfer{pool: p, elem: elem})
		}
		c.inFlight = append(c.inFlight, t)
		return true
	}
	if !fitting && len(c.remotePools) > 0 {
		c.held = 0 // dropped
	}
	return false
}

// settle polls for completions, sends indications, and releases pools.
func (c *channel) settle() bool {
	before, pending, unacked := c.completed, len(c.pending), c.indicated
	for len(c.inFlight) > 0 {
		// The completion of a request completes all requests before it. Only signaled requests
		// have one.
		i := slices.IndexFunc(c.inFlight, func(t transfer) bool { return t.seq > c.completed && c.isSignaled(t.seq) })
		if i < 0 || c.inFlight[i].seq > c.visible {
			break
		}
		c.completed = c.inFlight[i].seq
		for _, t := range c.inFlight[:i+1] {
			switch {
			case t.land != nil:
				t.land()
			case t.pool == nil || t.op >= opInvalidate:
			case t.op == opWrite:
				c.pending = append(c.pending, t)
			default:
				t.pool.remote.Done()
			}
		}
		c.inFlight = c.inFlight[i+1:]
	}
	for len(c.pending) > 0 && (c.unacknowledged() < c.window() || c.m.rules.noWindow ||
		c.m.rules.overtaken && c.m.mode.Immediate() && c.unacknowledged() < 1) {
		n := min(len(c.pending), 5)
		c.indicated++
		msg := message{kind: msgIndicate, channel: c.number}
		for _, t := range c.pending[:n] {
			t.pool.remote.Name(uint32(t.elem), c.indicated)
			if !c.m.rules.earlyIndicate {
				t.pool.remote.Done()
			}
			msg.inds = append(msg.inds, indication{pool: t.pool, elem: t.elem})
		}
		c.pending = slices.Clone(c.pending[n:])
		c.s.send(msg)
	}
	did := c.completed != before || len(c.pending) != pending || c.indicated != unacked
	if c.serialised && len(c.inFlight) == 0 && len(c.pending) == 0 && c.unacknowledged() == 0 {
		c.serialised = false
		did = true
	}
	return c.letGo() || did
}

// isSignaled reports whether request seq is signaled. The signaled field has a request that was
// signaled only after its batch was gathered.
func (c *channel) isSignaled(seq int) bool {
	if seq == c.signaled {
		return true
	}
	i := slices.IndexFunc(c.inFlight, func(t transfer) bool { return t.seq == seq })
	return i >= 0 && c.inFlight[i].signal
}

// letGo finishes the release of pools that are out of use.
func (c *channel) letGo() bool {
	did := false
	for i := 0; i < len(c.releasing); {
		r := c.releasing[i]
		if idle, last := r.pool.remote.Idle(); !idle && !c.m.rules.earlyRelease {
			if int(last) > c.signaled && !c.m.rules.noLastSignal {
				c.posted++
				c.signaled = c.posted
				t := transfer{op: opDrain, seq: c.posted, signal: true}
				c.net = append(c.net, t)
				c.inFlight = append(c.inFlight, t)
				did = true
			}
			i++
			continue
		}
		if r.last && !c.invalidate(r.pool) {
			return did
		}
		c.releasing = slices.Delete(c.releasing, i, i+1)
		c.s.step(bufpool.Event{Did: bufpool.Stop, Remote: r.pool.remote, Last: r.last})
		did = true
	}
	return did
}

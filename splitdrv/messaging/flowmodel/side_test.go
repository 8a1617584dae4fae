package flowmodel

import (
	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

type kind uint8

const (
	msgPools kind = iota
	msgUpdate
	msgIndicate
	msgGet
	msgFlush
	msgFlushed
	msgRequest
	msgReply
	kinds
)

// message is a control message.
type message struct {
	kind    kind
	channel int
	pools   []*pool // msgPools, and requestKeys
	returns []returned
	due     []*pool // pools for which an update, or an offer, counts
	forced  bool    // an update that was due for no pool
	inds    []indication
	refs    []uint32 // msgFlush
	number  uint64   // transaction of a flush
	request requestKind
	size    int // msgGet: size of the elements
	sent    uint64
}

type returned struct {
	pool  *pool
	elems []uint16
}

type indication struct {
	pool *pool
	elem int
}

type requestKind uint8

const (
	requestOther  requestKind = iota
	requestBehind             // the keep-alive behind a BufferRecvPoolGet
	requestSent
	requestKeys  // has the keys of a pool's windows
	requestReach // the keep-alive at the end of the session
)

// side is one side of the session, target and initiator.
type side struct {
	m        *model
	name     string
	peer     *side
	dead     bool
	phase    phase
	channels []*channel

	out         []message // on their way to the peer
	taken       []message // handled by the peer before their receives are posted again: a broken rule
	unprocessed int
	count       [kinds]int

	pools       *bufpool.Pools
	localPools  map[*bufpool.Local]*pool  // pools that are not deregistered
	made        map[*bufpool.Local]*pool  // all pools
	remotePools map[*bufpool.Remote]*pool // pools of the peer
	queue       []bufpool.Action          // actions for the pool manager
	behind      bool                      // a keep-alive has to be sent behind a BufferRecvPoolGet

	// Used by broken rules: actions of the pools that are withheld, by what they wait for, and
	// replies that are delayed.
	withheld map[*bufpool.Local][]bufpool.Action
	early    map[uint64][]bufpool.Action
	late     []uint64

	mine  int // number of unanswered requests
	inbox []message

	guard   guard
	unsent  []*pool // pools whose keys have to be sent before they are offered
	telling bool    // the keys of the first one have been sent
	heard   bool    // the peer has answered them
}

func newSide(m *model, i int) *side {
	s := &side{
		m: m, name: string(rune('a' + i)),
		localPools: make(map[*bufpool.Local]*pool), made: make(map[*bufpool.Local]*pool),
		remotePools: make(map[*bufpool.Remote]*pool),
		withheld:    make(map[*bufpool.Local][]bufpool.Action), early: make(map[uint64][]bufpool.Action),
	}
	for c := range m.shape.channels {
		s.channels = append(s.channels, &channel{
			m: m, s: s, number: c, pools: make([]*pool, m.shape.maxPools),
			elements: bufpool.Returns{Mode: m.returns(), Room: protocol.PoolReturnSize(fits)},
		})
	}
	return s
}

// returns returns the mode that decides when elements are returned. For some broken rules this is
// imm, where the return of an indicated element is urgent.
func (m *model) returns() protocol.Mode {
	if m.rules.eager || m.rules.hastyReturn {
		return protocol.ModeImm
	}
	return m.mode
}

// receives returns the largest number of receives of a data channel.
func (s *side) receives() int {
	switch {
	case s.m.mode.Indicated():
		return 0
	default:
		return s.m.shape.maxPools * poolLengths[len(poolLengths)-1]
	}
}

// furtherReceives returns the number of additional receives of a data channel, for messages that
// invalidate windows and for those with keys.
func (s *side) furtherReceives() (n int) {
	if s.m.rules.noFurther {
		return 0
	}
	if s.invalidates() {
		n += s.m.shape.maxPools
	}
	if s.peer.sendsKeys() {
		n += s.m.shape.maxPools
	}
	return n
}

func (s *side) poolLength() int { return s.m.shape.lengths[s.m.r.IntN(len(s.m.shape.lengths))] }

// fill makes the pool for l.
func (s *side) fill(l *bufpool.Local, size int) *pool {
	n := s.poolLength()
	p := &pool{
		m: s.m, ref: l.Ref, ch: l.Channel - 1, size: size, where: make([]place, n),
		local: l, elements: bufpool.NewElements(nil, size, n), written: make([]uint64, n),
	}
	p.at[offered] = n
	p.makeWindows(s.guard)
	l.Elements, l.Windows = p.elements, make([]fabric.Window, len(p.windows))
	s.localPools[l], s.made[l] = p, p
	return p
}

// offerFirst makes the first pools. Their sizes differ, so that a peer that does not know all of
// them yet can tell a pool that it has requested by its size.
func (s *side) offerFirst() {
	m := s.m
	s.pools = bufpool.NewPools(bufpool.Config{
		Channels: m.shape.channels, MaxPools: m.shape.maxPools, PeerPools: m.shape.maxPools,
		MaxElements: protocol.MaxPoolElements, KeptPools: m.shape.maxPools,
		OneTouch: s.guard == oneTouch, Invalidates: s.invalidates(), KeySend: s.sendsKeys(), IdleTicks: m.shape.idle,
	})
	var first []*pool
	for _, c := range s.channels {
		for i := range m.shape.firstPools {
			size := smallElement
			if i > 0 || m.mode.Sends() || m.one(2) {
				size = largeElement
			}
			if !m.rules.lateExtra {
				size += 64 * i
			}
			p := s.fill(s.pools.First(c.number+1), size)
			c.adopt(p)
			first = append(first, p)
		}
	}
	for _, p := range first {
		s.step(bufpool.Event{Did: bufpool.Adopt, Local: p.local})
	}
}

// send sends a control message and compares the numbers of unprocessed messages with their bounds.
func (s *side) send(msg message) {
	m := s.m
	s.out = append(s.out, msg)
	s.unprocessed++
	if bound := protocol.ControlReceives(m.mode, m.shape.channels, m.shape.maxPools); s.unprocessed > bound {
		m.fail("%s: %d control messages are unprocessed, %d receives are posted", s.name, s.unprocessed, bound)
	}
	s.count[msg.kind]++
	limit := func(what string, n, most int) {
		if n > most {
			m.fail("%s: %d %s are unprocessed, at most %d may be", s.name, n, what, most)
		}
	}
	for _, p := range msg.due {
		p.due++
		limit("updates of a pool", p.due, protocol.UpdatesPerPool)
	}
	c := s.channels[msg.channel]
	switch msg.kind {
	case msgUpdate:
		if msg.forced {
			c.forced++
			limit("updates that answer something", c.forced, m.answers())
		}
	case msgIndicate:
		c.indicates++
		limit("indications", c.indicates, c.window())
	case msgGet, msgFlush, msgFlushed:
		limit("flushes, or requests for a pool,", s.count[msg.kind], 1)
	case msgRequest, msgReply:
		limit("requests, or replies,", s.count[msg.kind], 4)
	default:
	}
}

// answers returns how many updates of a data channel that were due for no pool may be unprocessed.
func (m *model) answers() int {
	switch {
	case m.mode.Immediate():
		return 1
	case m.mode.Indicated():
		return 2
	default:
		return 0
	}
}

// processed is called when the receive of a message of this side is posted again.
func (s *side) processed(msg message) {
	s.unprocessed--
	s.count[msg.kind]--
	for _, p := range msg.due {
		p.due--
	}
	switch {
	case msg.forced:
		s.channels[msg.channel].forced--
	case msg.kind == msgIndicate:
		s.channels[msg.channel].indicates--
	}
}

// handle is one step of the control handler: it handles the peer's oldest message.
func (s *side) handle() bool {
	if len(s.peer.out) == 0 {
		return false
	}
	msg := s.peer.out[0]
	s.peer.out = s.peer.out[1:]
	if s.m.rules.lateRepost {
		s.peer.taken = append(s.peer.taken, msg)
	} else {
		s.peer.processed(msg)
	}
	s.dispatch(msg)
	return true
}

// repost posts receives again that should have been posted before, for a broken rule.
func (s *side) repost() bool {
	if len(s.peer.taken) == 0 {
		return false
	}
	s.peer.processed(s.peer.taken[0])
	s.peer.taken = s.peer.taken[1:]
	return true
}

func (s *side) dispatch(msg message) {
	m := s.m
	switch msg.kind {
	case msgPools:
		for _, p := range msg.pools {
			s.addRemote(p)
		}
	case msgUpdate:
		for _, r := range msg.returns {
			g := s.remotePools[s.pools.Remote(r.pool.ref)]
			if g != r.pool {
				m.fail("%s: an update of pool %d, which is another one now", s.name, r.pool.ref)
				return
			}
			for _, e := range r.elems {
				if err := g.remote.Return(uint32(e)); err != nil {
					m.fail("%s: pool %d: %v", s.name, g.ref, err)
					return
				}
				g.move(int(e), inUpdate, available)
				g.relend(int(e))
				c := s.channels[g.ch]
				c.acked = max(c.acked, g.remote.NamedIn(e))
			}
		}
	case msgIndicate:
		c := s.channels[msg.channel]
		for i, x := range msg.inds {
			c.queue = append(c.queue, rxEvent{kind: rxIndicated, pool: x.pool, elem: x.elem, last: i == len(msg.inds)-1})
		}
	case msgGet:
		s.step(bufpool.Event{Kind: bufpool.Get, Channel: msg.channel + 1, Size: msg.size})
	case msgFlush:
		for _, entry := range msg.refs {
			ref := entry &^ protocol.FlushGiveBack
			if l := s.local(ref); ref != entry && l != nil && !l.Extra && s.peer.phase == running {
				m.fail("%s: the peer gives back pool %d, which it has not asked for", s.name, ref)
			}
		}
		s.step(bufpool.Event{Kind: bufpool.Flush, Transaction: msg.number, Refs: msg.refs})
	case msgFlushed:
		switch {
		case m.rules.lateTaken:
			s.late = append(s.late, msg.number)
		case m.rules.flushTwice:
			for _, a := range s.early[msg.number] {
				s.hand(a)
			}
		default:
			s.step(bufpool.Event{Kind: bufpool.FlushReply, Transaction: msg.number})
		}
	case msgRequest:
		if s.inbox = append(s.inbox, msg); len(s.inbox) > 4 {
			m.fail("%s: %d requests are unanswered", s.name, len(s.inbox))
		}
	case msgReply:
		s.mine--
		switch msg.request {
		case requestBehind:
			if !m.rules.askTwice {
				s.step(bufpool.Event{Did: bufpool.Ask})
			}
		case requestKeys:
			s.heard = true
		case requestReach:
			s.reached()
		default:
		}
	default:
	}
}

// local returns the pool with this reference that this side lends, or nil.
func (s *side) local(ref uint32) *bufpool.Local {
	for l := range s.localPools {
		if l.Ref == ref {
			return l
		}
	}
	return nil
}

// addRemote adds a pool that the peer lends.
func (s *side) addRemote(p *pool) {
	switch {
	case s.peer.sendsKey(p):
	case p.guard == around:
		p.learn()
	case p.guard == oneTouch && !p.keyed:
		s.m.fail("%s: pool %d is lent, and its keys have not come", s.name, p.ref)
	}
	order := bufpool.LatestFirst
	if s.m.mode.Sends() {
		order = bufpool.InOrder
	}
	p.remote = bufpool.NewRemote(protocol.Pool{
		Ref: p.ref, Elements: uint32(len(p.where)), ElementSize: uint32(p.size),
		Context: protocol.PoolContext(uint16(p.ch+1), 0),
	}, order)
	p.remote.Invalidate, p.remote.KeyFollows = s.peer.invalidates(), s.peer.sendsKey(p)
	for e := range p.where {
		p.move(e, offered, available)
	}
	s.remotePools[p.remote] = p
	s.step(bufpool.Event{Kind: bufpool.Lent, Remote: p.remote})
	if s.m.rules.keylessUse && p.remote.KeyFollows {
		s.hand(bufpool.Action{Do: bufpool.Use, Remote: p.remote})
	}
}

// answer answers a request.
func (s *side) answer() bool {
	if len(s.inbox) == 0 {
		return false
	}
	msg := s.inbox[0]
	s.inbox = s.inbox[1:]
	if msg.request == requestKeys {
		for _, p := range msg.pools {
			p.learn()
			p.keyed = true
		}
	}
	if msg.request == requestSent {
		c := s.channels[msg.channel]
		c.sentByPeer = msg.sent
		if !c.queued {
			c.queued = true
			c.queue = append(c.queue, rxEvent{kind: rxSent})
		}
	}
	s.send(message{kind: msgReply, request: msg.request})
	return true
}

// request sends a request, if there may be another unanswered one.
func (s *side) request(k requestKind, channel int) bool {
	if s.mine == 4 || (k == requestOther && !s.m.flowing) {
		return false
	}
	s.mine++
	s.send(message{kind: msgRequest, request: k, channel: channel, sent: s.channels[channel].next})
	return true
}

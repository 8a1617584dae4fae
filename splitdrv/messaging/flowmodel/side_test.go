package flowmodel

import (
	"slices"

	"github.com/splitnic/splitnic/bufpool"
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
	forced  bool    // an update that none of them was due for
	retire  bool    // one that comes before a pool goes
	inds    []indication
	ref     uint32 // msgFlush
	number  uint64 // transaction of a flush
	request requestKind
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
	requestKeys // of a pool's windows
)

// side is one side of the session, target and initiator.
type side struct {
	m        *model
	name     string
	peer     *side
	dead     bool
	channels []*channel

	out         []message // on their way to the peer
	taken       []message // handled by the peer, their receives not posted again: a broken rule
	unprocessed int
	count       [kinds]int
	retires     int // updates before a pool goes, unprocessed

	pools    []*pool          // lent, until they are deregistered
	borrowed map[uint32]*pool // the peer's, by reference
	away     *pool

	gets      []message
	replied   bool
	flushing  func()
	giving    bool
	taking    bool
	quiet     *pool
	chores    []func()
	asking    bool
	asked     bool // ever
	behind    bool // a keep-alive has to be sent behind a BufferRecvPoolGet
	awaits    uint64
	number    uint64
	owesReply bool

	mine  int // requests unanswered
	inbox []message

	guard   guard
	untold  []*pool // whose keys have to be told before they are offered
	telling bool    // those of the first one are
	heard   bool    // and have been heard
}

func newSide(m *model, i int) *side {
	s := &side{m: m, name: string(rune('a' + i)), borrowed: make(map[uint32]*pool)}
	for c := range m.shape.channels {
		s.channels = append(s.channels, &channel{m: m, s: s, number: c, pools: make([]*pool, m.shape.maxPools)})
	}
	return s
}

// receives is how many receives a data channel has at most.
func (s *side) receives() int {
	switch {
	case s.m.mode == protocol.ModeIndicate:
		return 0
	default:
		return s.m.shape.maxPools * poolLengths[len(poolLengths)-1]
	}
}

// furtherReceives is how many a data channel has besides: for the messages that
// invalidate windows.
func (s *side) furtherReceives() int {
	if !s.invalidates() || s.m.rules.noFurther {
		return 0
	}
	return s.m.shape.maxPools
}

func (s *side) poolLength() int { return s.m.shape.lengths[s.m.r.IntN(len(s.m.shape.lengths))] }

func (s *side) makePool(ch, size, n int, extra bool) *pool {
	first := uint32(ch * s.m.shape.maxPools)
	for ref := first; ref < first+uint32(s.m.shape.maxPools); ref++ {
		if slices.ContainsFunc(s.pools, func(p *pool) bool { return p.ref == ref }) {
			continue
		}
		p := &pool{
			m: s.m, ref: ref, ch: ch, size: size, extra: extra, where: make([]place, n),
			loan: bufpool.NewLoan(nil, size, n), written: make([]uint64, n), namedIn: make([]uint64, n),
		}
		p.at[offered] = n
		p.makeWindows(s.guard)
		s.pools = append(s.pools, p)
		return p
	}
	return nil
}

func (s *side) offerFirst() {
	var all []*pool
	for _, c := range s.channels {
		for i := range s.m.shape.firstPools {
			size := smallElement
			if i > 0 || s.m.mode.Sends() || s.m.one(2) {
				size = largeElement
			}
			p := s.makePool(c.number, size, s.poolLength(), false)
			p.state = poolLent
			c.adopt(p)
			all = append(all, p)
		}
	}
	s.expose(all, func() { s.lend(all...) })
}

func (s *side) offer(pools ...*pool) { s.send(message{kind: msgPools, pools: pools, due: pools}) }

// send sends a control message and compares what is unprocessed with the bounds.
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
		if msg.retire {
			s.retires++
			limit("updates before a pool goes", s.retires, 2)
		} else if msg.forced {
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

// answers is how many updates of a data channel that no pool was due for may be
// unprocessed.
func (m *model) answers() int {
	switch m.mode {
	case protocol.ModeImm:
		return 1
	case protocol.ModeIndicate:
		return 2
	default:
		return 0
	}
}

// processed is when the receive of a message of this side's is posted again.
func (s *side) processed(msg message) {
	s.unprocessed--
	s.count[msg.kind]--
	for _, p := range msg.due {
		p.due--
	}
	switch {
	case msg.retire:
		s.retires--
	case msg.forced:
		s.channels[msg.channel].forced--
	case msg.kind == msgIndicate:
		s.channels[msg.channel].indicates--
	}
}

// handle is the control handler's part: the peer's oldest message.
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

// repost posts receives again that should have been before.
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
			s.borrow(p)
		}
	case msgUpdate:
		for _, r := range msg.returns {
			g := s.borrowed[r.pool.ref]
			if g != r.pool {
				m.fail("%s: an update of pool %d, which is another one now", s.name, r.pool.ref)
				return
			}
			for _, e := range r.elems {
				if err := g.grant.Return(uint32(e)); err != nil {
					m.fail("%s: pool %d: %v", s.name, g.ref, err)
					return
				}
				g.move(int(e), inUpdate, available)
				g.relend(int(e))
				c := s.channels[g.ch]
				c.acked = max(c.acked, g.namedIn[e])
			}
		}
	case msgIndicate:
		c := s.channels[msg.channel]
		for i, x := range msg.inds {
			c.mail = append(c.mail, letter{kind: letterIndicated, pool: x.pool, elem: x.elem, last: i == len(msg.inds)-1})
		}
	case msgGet:
		if len(s.gets) < 2 {
			s.gets = append(s.gets, msg)
		}
	case msgFlush:
		s.onFlush(msg)
	case msgFlushed:
		if s.awaits == 0 || s.awaits != msg.number {
			m.fail("%s: a reply to flush %d, while %d is awaited", s.name, msg.number, s.awaits)
			return
		}
		s.awaits = 0
		if !m.rules.lateTaken {
			s.tookAway()
		}
		s.replied = true
	case msgRequest:
		if s.inbox = append(s.inbox, msg); len(s.inbox) > 4 {
			m.fail("%s: %d requests are unanswered", s.name, len(s.inbox))
		}
	case msgReply:
		s.mine--
		switch msg.request {
		case requestBehind:
			s.asking = false
		case requestKeys:
			s.heard = true
		default:
		}
	default:
	}
}

// borrow takes a pool that the peer lends.
func (s *side) borrow(p *pool) {
	if old := s.borrowed[p.ref]; old != nil && old.granted != grantClosed {
		s.m.fail("%s: pool %d is lent twice", s.name, p.ref)
	}
	n := 1
	for _, o := range s.borrowed {
		if o.ch == p.ch && o.granted != grantClosed {
			n++
		}
	}
	if n > s.m.shape.maxPools {
		s.m.fail("%s: %d pools on channel %d", s.name, n, p.ch)
	}
	switch {
	case p.guard == around:
		p.learn()
	case p.guard == oneTouch && !p.told:
		s.m.fail("%s: pool %d is lent, and its keys have not come", s.name, p.ref)
	}
	p.late = s.asked
	order := bufpool.LatestFirst
	if s.m.mode.Sends() {
		order = bufpool.InOrder
	}
	p.grant = bufpool.NewGrant(0, 0, p.size, len(p.where), order)
	for e := range p.where {
		p.move(e, offered, available)
	}
	s.borrowed[p.ref] = p
	c := s.channels[p.ch]
	c.grants = append(c.grants, p)
	slices.SortStableFunc(c.grants, func(a, b *pool) int { return a.size - b.size })
}

func (s *side) onFlush(msg message) {
	if s.owesReply {
		s.m.fail("%s: a flush while another one is not answered", s.name)
		return
	}
	s.owesReply = true
	reply := &job{left: 1, then: func() {
		s.owesReply = false
		s.send(message{kind: msgFlushed, number: msg.number})
	}}
	ref := msg.ref &^ protocol.FlushGiveBack
	if msg.ref&protocol.FlushGiveBack == 0 {
		g := s.borrowed[ref]
		if g == nil || g.granted == grantClosed {
			s.m.fail("%s: the peer takes back pool %d, which this side does not have", s.name, ref)
			return
		}
		g.granted = grantClosed
		s.channels[g.ch].revoke(release{pool: g, job: reply, last: true})
		return
	}
	i := slices.IndexFunc(s.pools, func(p *pool) bool { return p.ref == ref })
	if i < 0 || s.pools[i].state == poolRetiring {
		s.m.fail("%s: the peer gives back pool %d, which is not lent", s.name, ref)
		return
	}
	if !s.pools[i].extra {
		s.m.fail("%s: the peer gives back pool %d, which it has not asked for", s.name, ref)
	}
	s.retire(s.pools[i], reply.done)
}

// retire begins the end of a pool that the peer has stopped using.
func (s *side) retire(p *pool, then func()) {
	if p.state == poolRetiring {
		s.chores = append(s.chores, then)
		return
	}
	p.state = poolRetiring
	end := &job{left: 1, then: func() {
		s.chores = append(s.chores, func() {
			switch {
			case s.m.rules.earlyReuse:
				s.dispose(p)
				s.chores = append(s.chores, then)
			case len(p.windows) == 0:
				s.dispose(p)
				then()
			default:
				then()
				s.withdraw(p)
			}
		})
	}}
	c := s.channels[p.ch]
	c.mail = append(c.mail, letter{kind: letterRetire, pool: p, job: end})
}

func (s *side) dispose(p *pool) {
	p.gone = true
	for i := range p.windows {
		if p.windows[i].bound {
			s.m.fail("%s: pool %d is deregistered, and can be written through window %d", s.name, p.ref, i)
		}
	}
	s.pools = slices.DeleteFunc(s.pools, func(o *pool) bool { return o == p })
}

func (s *side) tookAway() {
	if s.away != nil {
		s.away.granted = grantClosed
		s.endWindow(s.away)
		s.away = nil
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
			p.told = true
		}
	}
	if msg.request == requestSent {
		c := s.channels[msg.channel]
		c.sentByPeer = msg.sent
		if !c.mailed {
			c.mailed = true
			c.mail = append(c.mail, letter{kind: letterSent})
		}
	}
	s.send(message{kind: msgReply, request: msg.request})
	return true
}

// request sends a request, if another one may be out.
func (s *side) request(k requestKind, channel int) bool {
	if s.mine == 4 || (k == requestOther && !s.m.flowing) {
		return false
	}
	s.mine++
	s.send(message{kind: msgRequest, request: k, channel: channel, sent: s.channels[channel].next})
	return true
}

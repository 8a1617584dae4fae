package flowmodel

import (
	"fmt"
	"math/rand/v2"

	"github.com/splitnic/splitnic/protocol"
)

// rules are what the sides do. Those that are set are broken.
type rules struct {
	lateRepost     bool // a control message takes effect before its receive is posted again
	updateFirst    bool // elements go back before the receives they stand for are posted again
	eager          bool // an update for each element, without waiting for a quarter
	overtaken      bool // nothing waits for a transfer that immediate data cannot indicate
	noDrain        bool // a pool is retired before what has arrived is taken
	noWindow       bool // indications are not bounded
	earlyIndicate  bool // a transfer is indicated before it has completed
	earlyRelease   bool // a flush is answered before transfers have completed
	noAcknowledge  bool // no update for indications as such
	noLastSignal   bool // nothing asks for the completion of a pool's last transfer
	noSent         bool // nobody says what was sent on a channel that loses messages
	hastyReturn    bool // what was lost goes back before a quarter is free
	lateTaken      bool // the reply to a flush takes effect after what comes behind it
	earlyTakeBack  bool // a pool is taken back before it was offered
	earlyReuse     bool // a reference is free before the reply that says so
	askTwice       bool // a pool is asked for while the last request is not acknowledged
	hastyTakeBack  bool // a pool is taken back before the last one is gone
	flushTwice     bool // a flush is sent while another one is not answered
	partialUpdates bool // no update is cut: one that does not fit is not sent
	lateExtra      bool // a first pool that comes late is taken for one that was asked for

	// Of windows.
	staleKey        bool // one is bound again with the same key
	unboundOffer    bool // a pool is offered before its windows are bound
	offerFirst      bool // a pool is offered before the keys of its elements are sent
	noRevoke        bool // elements are looked at while their windows are bound
	lateLook        bool // or when they are bound again
	unboundReturn   bool // elements go back before their windows are bound
	hastyRetire     bool // a pool is retired while elements of it are gathered
	earlyDispose    bool // a pool is deregistered while its windows are bound
	bothInvalidate  bool // both sides invalidate the window around a pool
	earlyInvalidate bool // the window of a pool is invalidated before the peer has taken it back
	noFurther       bool // there are no receives for the messages that do so, or that bring keys
	keylessUse      bool // a pool is written to before its key has come
	keyBeforeBind   bool // a key is sent before its window is bound
	keyElsewhere    bool // a key is taken for that of a pool of another channel
	forgetful       bool // what is with the sender when the session ends is not counted
}

// model is both sides and the network between them.
type model struct {
	mode    protocol.Mode
	rules   rules
	r       *rand.Rand
	sides   [2]*side
	shape   shape
	failure error
	flowing bool // ports have frames, senders lack elements
	steps   int
	agreed  bool  // whose pools are behind windows has the peer invalidate them
	sends   bool  // and sends their keys behind their binds
	keys    int   // the latest that no window has yet
	sent    []int // keys in messages
}

// shape is the configuration of a run.
type shape struct {
	channels, maxPools, firstPools int
	lengths                        []int // of pools
	depth, signalEvery             int   // of send queues
	idle                           int   // looks without use after which a pool goes
}

const (
	smallElement = 2048
	largeElement = protocol.MaxImmLength + 65
	// fits is how many elements an update holds here: a quarter of the largest
	// pool at least.
	fits  = 50
	batch = 3
)

var poolLengths = []int{1, 2, 3, 4, 5, 8, 16, 80, 200}

// frameLengths are those of the frames: the last is too long for immediate data.
var frameLengths = [...]int{100, 1500, 1500, 60000, protocol.MaxImmLength + 9}

// newModel makes one with windows, or without.
func newModel(seed uint64, mode protocol.Mode, windows bool, broken rules) *model {
	m := &model{mode: mode, rules: broken, r: rand.New(rand.NewPCG(seed, 0x5eed)), flowing: true}
	m.shape = shape{channels: 1 + m.r.IntN(2), maxPools: 1 + m.r.IntN(5), signalEvery: 1 + m.r.IntN(4)}
	m.shape.idle = 1 + 7*m.r.IntN(2)
	m.shape.lengths = poolLengths
	if m.one(4) {
		m.shape.lengths = poolLengths[len(poolLengths)-2:]
	}
	m.shape.depth = m.shape.signalEvery + batch + 1 + m.r.IntN(20)
	if mode.Sends() {
		m.shape.maxPools = 1
	}
	m.shape.firstPools = 1 + m.r.IntN(m.shape.maxPools)
	for i := range m.sides {
		m.sides[i] = newSide(m, i)
	}
	m.sides[0].peer, m.sides[1].peer = m.sides[1], m.sides[0]
	if windows && !mode.Sends() {
		// Drawn apart, so that without windows a seed means what it meant.
		r := rand.New(rand.NewPCG(seed, 0xa4d))
		m.agreed, m.sends = r.IntN(2) == 0, seed%2 == 0
		for _, s := range m.sides {
			s.guard = guard(r.IntN(int(guards)))
		}
	}
	for _, s := range m.sides {
		for _, c := range s.channels {
			c.receives += s.furtherReceives()
		}
		s.offerFirst()
	}
	return m
}

// fail records the first violation.
func (m *model) fail(format string, args ...any) {
	if m.failure == nil {
		m.failure = fmt.Errorf("step %d: %s", m.steps, fmt.Sprintf(format, args...))
	}
}

// one reports true once in n times.
func (m *model) one(n int) bool { return m.r.IntN(n) == 0 }

// walk makes random steps. Most of the time somebody does nothing for a while.
func (m *model) walk(steps int) {
	var idler worker
	lazy := 0
	for i := range steps {
		if i%64 == 0 {
			idler, lazy = worker(m.r.IntN(int(workers))), m.r.IntN(2)
		}
		for range 8 { // until something was to be done
			side := m.r.IntN(2)
			a := &actions[m.r.IntN(len(actions))]
			if m.sides[side].dead || (a.worker == idler && side == lazy) {
				continue
			}
			if a.act(m.sides[side], m.r.IntN(m.shape.channels)) {
				break
			}
		}
		m.steps++
		m.check()
		if m.failure != nil {
			return
		}
	}
}

// quiesce lets everything be delivered and done, without new frames.
func (m *model) quiesce() {
	m.flowing = false
	for again := true; again && m.failure == nil; {
		again = false
		for _, s := range m.sides {
			for _, act := range actions {
				for c := range m.shape.channels {
					if act.act(s, c) {
						again = true
					}
				}
			}
		}
		if m.steps++; m.steps > 100000 {
			m.fail("it never comes to rest")
		}
		m.check()
	}
	m.flowing = true
}

// worker is who acts.
type worker uint8

const (
	network worker = iota
	adapter        // completes what has been carried out
	handler
	sender
	receiver
	answerer
	manager
	whim // what happens for no reason
	workers
)

// actions are all that can happen, to a side and one of its data channels.
var actions = []struct {
	worker
	act func(s *side, channel int) bool
}{
	{network, func(s *side, c int) bool { return s.channels[c].deliver() }},
	{network, func(s *side, c int) bool { return s.channels[c].deliver() }},
	{adapter, func(s *side, c int) bool { return s.channels[c].complete() }},
	{handler, func(s *side, _ int) bool { return s.handle() }},
	{handler, func(s *side, _ int) bool { return s.repost() }},
	{sender, func(s *side, c int) bool { return s.channels[c].transmit() }},
	{sender, func(s *side, c int) bool { return s.channels[c].transmit() }},
	{receiver, func(s *side, c int) bool { return s.channels[c].receive() }},
	{receiver, func(s *side, c int) bool { return s.channels[c].receive() }},
	{receiver, func(s *side, c int) bool { return s.channels[c].receive() }},
	{answerer, func(s *side, _ int) bool { return s.answer() || s.sendKeys() }},
	{manager, func(s *side, _ int) bool { return s.manage() }},
	{manager, func(s *side, _ int) bool { return s.manage() }},
	{whim, func(s *side, _ int) bool { return s.request(requestOther, 0) }},
	{whim, func(s *side, c int) bool { return s.rescue(c) }},
	{whim, func(s *side, c int) bool { return s.need(c) }},
	{whim, func(s *side, c int) bool { return s.tick(c) }},
}

// check compares the ledgers with where the elements are.
func (m *model) check() {
	for _, s := range m.sides {
		for _, p := range s.localPools {
			l := p.elements.Ledger()
			if l.Check() != nil || l.Consumed != p.at[consumed] || l.Returning != p.at[returning] {
				m.fail("%s: pool %d: the target's ledger is %+v, elements are %v", s.name, p.ref, l, p.at)
			}
			if p.remote == nil || p.remote.Credits == nil { // it was refused
				continue
			}
			if g := p.remote.Ledger(); g.Check() != nil || g.Available != p.at[available] {
				m.fail("%s: pool %d: the initiator's ledger is %+v, elements are %v", s.name, p.ref, g, p.at)
			}
		}
		for _, c := range s.channels {
			if len(c.cq) > s.receives()+s.furtherReceives() {
				m.fail("%s: %d completions in a queue for %d", s.name, len(c.cq), s.receives())
			}
		}
	}
}

// rested checks a model that has come to rest: nothing is lost or forgotten,
// and everybody can send again.
func (m *model) rested() {
	for _, s := range m.sides {
		if s.unprocessed != 0 || s.mine != 0 || len(s.queue) != 0 {
			m.fail("%s: at rest with %d messages unprocessed, %d requests, %d actions", s.name, s.unprocessed, s.mine,
				len(s.queue))
		}
		if err := s.pools.AtRest(); err != nil {
			m.fail("%s: at rest, %v", s.name, err)
		}
		for _, p := range s.localPools {
			for i := range p.windows {
				if !p.windows[i].bound {
					m.fail("%s: at rest, window %d of pool %d is not bound", s.name, i, p.ref)
				}
			}
		}
		for i, c := range s.channels {
			if c.serialised || c.room() <= 0 || len(c.pending) != 0 || len(c.releasing) != 0 {
				m.fail("%s: at rest, channel %d cannot send: serialised %t, room %d, %d to be indicated, %d releasing", s.name, i, c.serialised,
					c.room(), len(c.pending), len(c.releasing))
			}
			if n := len(c.batches.Abandoned()); len(c.requests)+n+len(s.unsent) != 0 {
				m.fail("%s: at rest, channel %d has %d requests, %d batches; %d pools are not offered", s.name, i, len(c.requests),
					n, len(s.unsent))
			}
			if m.mode == protocol.ModeIndicate && c.indicated-c.acked >= protocol.IndicatesPerChannel {
				m.fail("%s: at rest, channel %d has %d indications unacknowledged", s.name, i, c.indicated-c.acked)
			}
			if got := s.peer.channels[i].arrived; got != c.framesSent && m.mode != protocol.ModeSendUC {
				m.fail("%s: at rest, %d of %d frames have arrived on channel %d", s.name, got, c.framesSent, i)
			}
			for _, p := range c.remotePools {
				if p.at[available] == 0 || p.at[returning] >= (len(p.where)+3)/4 {
					m.fail("%s: at rest, of %d elements of pool %d elements are %v", s.name, len(p.where), p.ref, p.at)
				}
			}
		}
	}
}

// abandoned checks what is left where the session ends.
func (m *model) abandoned() {
	for _, s := range m.sides {
		for _, c := range s.channels {
			c.abandoned()
		}
	}
}

// run is one run: a walk, perhaps the death of a side, and rest from time to
// time.
func run(seed uint64, mode protocol.Mode, windows bool, broken rules, steps int) *model {
	m := newModel(seed, mode, windows, broken)
	rounds := 1 + m.r.IntN(3)
	for range rounds {
		m.walk(steps / rounds)
		if m.failure != nil {
			return m
		}
		if m.one(16) {
			m.sides[m.r.IntN(2)].dead = true
			m.walk(steps / rounds) // the other one hears nothing any more
			if m.failure == nil {
				m.abandoned()
			}
			return m
		}
		m.quiesce()
		if m.failure == nil {
			m.rested()
		}
		if m.failure != nil {
			return m
		}
	}
	return m
}

package flowmodel

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"

	"github.com/splitnic/splitnic/protocol"
)

// rules has the rules that the sides keep. Those that are set are broken.
type rules struct {
	lateRepost     bool // a control message takes effect before its receive is posted again
	updateFirst    bool // elements are returned before their receives are posted again
	eager          bool // an update for each element, without waiting for a quarter
	overtaken      bool // nothing waits for a transfer that immediate data cannot indicate
	noDrain        bool // a pool is retired before its completions are taken
	noWindow       bool // indications are not limited
	earlyIndicate  bool // a transfer is indicated before it has completed
	earlyRelease   bool // a flush is answered before transfers have completed
	noAcknowledge  bool // no update for indications as such
	noLastSignal   bool // nothing asks for the completion of a pool's last transfer
	noSent         bool // the peer is not told what was sent on a channel that loses messages
	hastyReturn    bool // elements of lost messages are returned before a quarter is free
	lateTaken      bool // the reply to a flush takes effect after the messages behind it
	earlyTakeBack  bool // a pool is taken back before it was offered
	earlyReuse     bool // a reference is free before the reply that says so
	askTwice       bool // a pool is asked for while the last request is not acknowledged
	flushTwice     bool // a flush is sent while another one is not answered
	partialUpdates bool // no update is cut: one that does not fit is not sent
	hastyEnd       bool // the session ends before the last work requests have completed
	lateExtra      bool // a first pool that is offered late is taken for a requested one

	// Rules of windows.
	staleKey        bool // a window is bound again with the same key
	unboundOffer    bool // a pool is offered before its windows are bound
	offerFirst      bool // a pool is offered before the keys of its elements are sent
	noRevoke        bool // elements are read while their windows are bound
	lateLook        bool // elements are read when their windows are bound again
	unboundReturn   bool // elements are returned before their windows are bound
	hastyRetire     bool // a pool is retired while some of its elements are gathered
	earlyDispose    bool // a pool is deregistered while its windows are bound
	bothInvalidate  bool // both sides invalidate the window around a pool
	earlyInvalidate bool // the window of a pool is invalidated before the peer has taken it back
	noFurther       bool // there are no receives for messages that invalidate windows or have keys
	keylessUse      bool // a pool is written to before its key has arrived
	keyBeforeBind   bool // a key is sent before its window is bound
	keyElsewhere    bool // a key is taken for that of a pool of another channel
	forgetful       bool // batches at the sender are not counted when the session ends
}

// model is both sides and the network between them.
type model struct {
	mode     protocol.Mode
	rules    rules
	r        *rand.Rand
	sides    [2]*side
	shape    shape
	failure  error
	panicked bool // failure is a panic: nothing has found the broken rule
	flowing  bool // ports have frames, senders lack elements
	steps    int
	agreed   bool  // the peer invalidates the windows of pools
	sends    bool  // the keys of windows are sent behind their binds
	keys     int   // first key of the last window
	sent     []int // keys in messages
}

// shape is the configuration of a run.
type shape struct {
	channels, maxPools, firstPools int
	lengths                        []int // possible numbers of elements of pools
	depth, signalEvery             int   // of send queues
	idle                           int   // number of ticks after which an unused pool is given up
}

const (
	smallElement = 2048
	largeElement = protocol.MaxImmLength + 65
	// fits is the number of elements that an update holds in the model: at least a quarter of the
	// largest pool.
	fits  = 50
	batch = 3
)

var poolLengths = []int{1, 2, 3, 4, 5, 8, 16, 80, 200}

// frameLengths has the lengths of frames. The last one is too long for immediate data.
var frameLengths = [...]int{100, 1500, 1500, 60000, protocol.MaxImmLength + 9}

// newModel returns a model with or without windows.
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
		// A separate generator, so that without windows a seed gives the same run as before.
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

// walk makes random steps. Most of the time one worker of one side does nothing for a while.
func (m *model) walk(steps int) {
	var idler worker
	lazy := 0
	for i := range steps {
		if i%64 == 0 {
			idler, lazy = worker(m.r.IntN(int(workers))), m.r.IntN(2)
		}
		for range 8 { // until an action has done something
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

// quiesce lets everything be delivered and carried out, without new frames.
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

// worker is the part of a side that carries out an action.
type worker uint8

const (
	network worker = iota
	adapter        // completes work requests that have been carried out
	handler
	sender
	receiver
	answerer
	manager
	whim // actions that happen without a reason
	workers
)

// actions has all actions of a side and one of its data channels.
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

// check compares the ledgers with the places of the elements.
func (m *model) check() {
	for _, s := range m.sides {
		for _, p := range s.localPools {
			l := p.elements.Ledger()
			if l.Check() != nil || l.Consumed != p.at[consumed] || l.Returning != p.at[returning] {
				m.fail("%s: pool %d: the target's ledger is %+v, elements are %v", s.name, p.ref, l, p.at)
			}
			if p.remote == nil || p.remote.Credits == nil { // the pool was refused
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

// rested checks a model at rest: nothing is lost or forgotten, and all channels can send again.
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
			if m.mode.Indicated() && c.indicated-c.acked >= protocol.IndicatesPerChannel {
				m.fail("%s: at rest, channel %d has %d indications unacknowledged", s.name, i, c.indicated-c.acked)
			}
			if got := s.peer.channels[i].arrived; got != c.framesSent && !m.mode.Lossy() {
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

// abandoned checks the state that is left when the session ends.
func (m *model) abandoned() {
	for _, s := range m.sides {
		for _, c := range s.channels {
			c.abandoned()
		}
	}
}

// run makes one run: a walk, sometimes the death of a side, and a rest from time to time. Some runs
// end the session in good order.
// A panic is a failure of the run too, so that the caller prints its seed.
func run(seed uint64, mode protocol.Mode, windows bool, broken rules, steps int) (m *model) {
	m = newModel(seed, mode, windows, broken)
	defer func() {
		if p := recover(); p != nil {
			m.panicked = true
			m.failure = fmt.Errorf("step %d: panic: %v\n%s", m.steps, p, debug.Stack())
		}
	}()
	rounds := 1 + m.r.IntN(3)
	for range rounds {
		m.walk(steps / rounds)
		if m.failure != nil {
			return m
		}
		if m.one(16) {
			m.sides[m.r.IntN(2)].dead = true
			m.walk(steps / rounds) // the other side receives nothing any more
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
	// A separate generator, so that up to here a seed gives the same run without an end.
	if r := rand.New(rand.NewPCG(seed, 0xe0d)); !mode.Sends() && r.IntN(4) == 0 {
		m.end(r, steps/rounds)
	}
	return m
}

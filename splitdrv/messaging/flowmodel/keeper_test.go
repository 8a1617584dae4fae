package flowmodel

import "github.com/splitnic/splitnic/protocol"

// keep is the keeper's part: one thing that waits for it.
func (s *side) keep() bool {
	getsFirst := s.m.one(2) // it takes what comes first
	switch {
	case s.behind && s.mine < 4:
		s.behind = false
		s.request(requestBehind, 0)
	case s.replied:
		s.replied = false
		if s.m.rules.lateTaken {
			s.tookAway()
		}
		then := s.flushing
		s.flushing = nil
		then()
	case len(s.gets) > 0 && getsFirst:
		s.grantNext()
	case len(s.chores) > 0:
		do := s.chores[0]
		s.chores = s.chores[1:]
		do()
	case s.quiet != nil && s.flushing == nil:
		g := s.quiet
		s.quiet, s.giving = nil, false
		if g.granted != grantIdle {
			return true // the peer has taken it back itself
		}
		g.granted = grantGiven
		s.away = g
		if s.m.rules.earlyInvalidate {
			s.endWindow(g)
		}
		s.flush(g.ref|protocol.FlushGiveBack, func() {})
	case len(s.gets) > 0:
		s.grantNext()
	default:
		return false
	}
	return true
}

func (s *side) flush(ref uint32, then func()) {
	s.number++
	s.awaits = s.number
	s.flushing = then
	s.send(message{kind: msgFlush, ref: ref, number: s.number})
}

func (s *side) grantNext() {
	get := s.gets[0]
	s.gets = s.gets[1:]
	s.grant(get)
}

// grant lends another pool.
func (s *side) grant(get message) {
	size := smallElement
	if s.m.one(2) {
		size = largeElement
	}
	p := s.makePool(get.channel, size, s.poolLength(), true)
	if p == nil {
		return
	}
	j := &job{left: 1, then: func() { s.expose([]*pool{p}, func() { s.lend(p) }) }}
	c := s.channels[get.channel]
	c.mail = append(c.mail, letter{kind: letterAdopt, pool: p, job: j})
}

// ask asks for a pool.
func (s *side) ask(c int) bool {
	if s.m.mode.Sends() || !s.m.flowing || (s.asking && !s.m.rules.askTwice) || len(s.channels[c].grants) >= s.m.shape.maxPools {
		return false
	}
	s.asking, s.behind, s.asked = true, true, true
	s.send(message{kind: msgGet, channel: c})
	return true
}

// takeBack takes back a pool that was lent on request.
func (s *side) takeBack(c int) bool {
	if !s.m.flowing || ((s.flushing != nil || s.taking && !s.m.rules.hastyTakeBack) && !s.m.rules.flushTwice) {
		return false
	}
	for _, p := range s.pools {
		if p.ch == c && p.extra && (p.state == poolLent || (p.state == poolMade && s.m.rules.earlyTakeBack)) {
			p.state = poolFlushing
			s.taking = true
			s.flush(p.ref, func() { s.retire(p, func() { s.taking = false }) })
			return true
		}
	}
	return false
}

// giveBack begins to give back a pool that came on request.
func (s *side) giveBack(c int) bool {
	if !s.m.flowing || s.giving {
		return false
	}
	for _, g := range s.channels[c].grants {
		if (g.extra || g.late && s.m.rules.lateExtra) && g.granted == grantInUse {
			g.granted = grantIdle
			s.giving = true
			s.channels[c].revoke(release{pool: g, job: &job{left: 1, then: func() { s.quiet = g }}})
			return true
		}
	}
	return false
}

// rescue says what was sent on a channel without a credit.
func (s *side) rescue(c int) bool {
	ch := s.channels[c]
	if s.m.mode != protocol.ModeSendUC || s.m.rules.noSent || !ch.dry() {
		return false
	}
	// At rest only if something is missing, or there would be no rest.
	if !s.m.flowing && (s.peer.channels[c].expected == ch.next || s.mine > 0 || len(ch.net) > 0) {
		return false
	}
	return s.request(requestSent, c)
}

package flowmodel

import (
	"math/rand/v2"

	"github.com/splitnic/splitnic/bufpool"
)

// phase is how far a side has come that ends the session in good order. Conn.Flush carries this
// out; its time limit is the death of a side.
type phase uint8

const (
	running  phase = iota
	flushing       // Flush waits until all pools have ended
	pausing        // Pause waits for all work requests of the senders, which read no more frames
	reaching       // Pause waits for the reply to its keep-alive
	over           // Flush has returned
)

// end begins the end of the session: poolManager.end.
func (s *side) end() {
	s.phase = flushing
	s.step(bufpool.Event{Kind: bufpool.Ending})
}

// gone is called after each event of the pools, like the end of poolManager.notify.
func (s *side) gone() {
	if s.phase == flushing && s.pools.Gone() {
		s.phase = pausing
	}
}

// intrude is a step of a sender between two actions of the same event: poolManager.hand makes a
// pool usable before it hands on the Stop behind it.
func (s *side) intrude(a bufpool.Action) {
	if s.phase != running && a.Do == bufpool.Use && s.m.one(2) {
		s.channels[a.Remote.Channel-1].write()
	}
}

// finish is one step of Conn.Pause behind the end of the pools.
func (s *side) finish() bool {
	did, settled := false, true
	for _, c := range s.channels {
		if s.m.rules.hastyEnd {
			break
		}
		if len(c.inFlight)+len(c.pending)+len(c.requests) == 0 {
			continue
		}
		settled = false
		if c.posted > c.signaled { // finishDrains
			c.post(transfer{op: opDrain, signal: true})
			did = true
		}
	}
	if settled && s.request(requestReach, 0) {
		s.phase = reaching
		return true
	}
	return did
}

// reached is called when Conn.Flush returns. What was sent has arrived then.
func (s *side) reached() {
	s.phase = over
	for i, c := range s.channels {
		if far := s.peer.channels[i]; c.arrived != far.framesSent {
			s.m.fail("%s: at the end, %d of %d frames have arrived on channel %d", s.name, c.arrived, far.framesSent, i)
		}
		if len(c.net) > 0 {
			s.m.fail("%s: at the end, %d work requests of channel %d are on their way", s.name, len(c.net), i)
		}
	}
}

// end ends the session in good order in the middle of a walk, from one side or from both. All
// pools of both sides must end.
func (m *model) end(r *rand.Rand, steps int) {
	m.walk(steps)
	first, both := r.IntN(2), r.IntN(4) == 0
	for i, does := range []bool{true, both} {
		if s := m.sides[(first+i)%2]; does && m.failure == nil {
			s.end()
			m.walk(r.IntN(steps))
		}
	}
	if m.failure == nil {
		m.quiesce()
	}
	if m.failure == nil {
		m.rested()
	}
	for _, s := range m.sides {
		if m.failure == nil && (!s.pools.Gone() || s.phase != running && s.phase != over) {
			m.fail("%s: the session does not end: phase %d, all pools gone: %t", s.name, s.phase, s.pools.Gone())
		}
	}
}

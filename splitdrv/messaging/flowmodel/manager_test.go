package flowmodel

import (
	"slices"
	"time"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/protocol"
)

// step passes an event to the pools, and hands their actions on.
func (s *side) step(e bufpool.Event) {
	for _, a := range s.hear(e) {
		s.hand(a)
		s.intrude(a)
	}
}

func (s *side) hear(e bufpool.Event) []bufpool.Action {
	out, err := s.pools.Step(&e, nil)
	if err != nil {
		s.m.fail("%s: %v", s.name, err)
	}
	s.gone()
	return out
}

// hand hands an action to the worker that carries it out. For a broken rule, an action is left out
// or carried out at another time, or an event happens too early.
func (s *side) hand(a bufpool.Action) {
	broken := &s.m.rules
	var c *channel
	switch {
	case a.Local != nil:
		c = s.channels[a.Local.Channel-1]
	case a.Remote != nil:
		c = s.channels[a.Remote.Channel-1]
	}
	switch a.Do {
	case bufpool.Adopt:
		c.queue = append(c.queue, rxEvent{kind: rxAdopt, pool: s.localPools[a.Local]})
		if broken.earlyTakeBack {
			s.withheld[a.Local] = s.hear(bufpool.Event{Did: bufpool.Bind, Local: a.Local})
		}
	case bufpool.Drain:
		c.queue = append(c.queue, rxEvent{kind: rxDrain, pool: s.localPools[a.Local]})
	case bufpool.Bind:
		c.requests = append(c.requests, sqRequest{kind: sqBind, pool: s.localPools[a.Local]})
		if broken.unboundOffer {
			s.step(bufpool.Event{Did: bufpool.Bind, Local: a.Local})
		}
	case bufpool.BindSend:
		c.requests = append(c.requests, sqRequest{kind: sqBindSend, pool: s.localPools[a.Local]})
	case bufpool.Unbind:
		if broken.earlyDispose {
			s.step(bufpool.Event{Did: bufpool.Unbind, Local: a.Local})
			return
		}
		c.requests = append(c.requests, sqRequest{kind: sqUnbind, pool: s.localPools[a.Local]})
	case bufpool.Use:
		if p := s.remotePools[a.Remote]; a.Remote.KeyFollows {
			p.keys = []int{0}
			if n := a.Remote.RKey(); n > 0 {
				p.keys[0] = s.m.sent[n-1]
			}
		}
		c.remotePools = append(c.remotePools, s.remotePools[a.Remote])
		slices.SortStableFunc(c.remotePools, func(a, b *pool) int { return a.size - b.size })
	case bufpool.Stop:
		c.revoke(release{pool: s.remotePools[a.Remote], last: a.Last})
	case bufpool.Invalidate:
		c.requests = append(c.requests, sqRequest{kind: sqInvalidate, pool: s.remotePools[a.Remote]})
	case bufpool.SendKeys:
		if broken.offerFirst {
			s.step(bufpool.Event{Did: bufpool.SendKeys, Local: a.Local})
			return
		}
		s.unsent = append(s.unsent, s.localPools[a.Local])
	case bufpool.Request:
		s.queue = append(s.queue, a)
		if broken.flushTwice {
			s.early[a.Transaction] = s.hear(bufpool.Event{Kind: bufpool.FlushReply, Transaction: a.Transaction})
		}
	default:
		s.queue = append(s.queue, a)
	}
}

// release hands on the withheld actions for l, and reports whether there was an entry for l.
func (s *side) release(l *bufpool.Local) bool {
	withheld, ok := s.withheld[l]
	delete(s.withheld, l)
	for _, a := range withheld {
		s.hand(a)
	}
	return ok
}

// manage is one step of the pool manager: its first action.
func (s *side) manage() bool {
	switch {
	case s.behind && s.mine < 4:
		s.behind = false
		s.request(requestBehind, 0)
	case len(s.late) > 0:
		number := s.late[0]
		s.late = s.late[1:]
		s.step(bufpool.Event{Kind: bufpool.FlushReply, Transaction: number})
	case len(s.queue) > 0:
		a := s.queue[0]
		s.queue = s.queue[1:]
		if s.m.rules.earlyReuse && a.Do == bufpool.Reply && len(s.queue) > 0 {
			s.queue = append(s.queue, a) // later
			return true
		}
		s.do(a)
	case s.phase == pausing:
		return s.finish()
	default:
		return false
	}
	return true
}

// do carries out an action of the pool manager.
func (s *side) do(a bufpool.Action) {
	switch a.Do {
	case bufpool.Make:
		if s.m.one(8) {
			s.step(bufpool.Event{Kind: bufpool.Failed, Local: a.Local})
			return
		}
		s.fill(a.Local, bufpool.LentSize(a.Size))
		s.step(bufpool.Event{Did: bufpool.Make, Local: a.Local})
	case bufpool.Offer:
		pools := []*pool{s.localPools[a.Local]}
		for len(s.queue) > 0 && s.queue[0].Do == bufpool.Offer {
			pools = append(pools, s.localPools[s.queue[0].Local])
			s.queue = s.queue[1:]
		}
		s.send(message{kind: msgPools, pools: pools, due: pools})
	case bufpool.Ask:
		s.behind = true
		s.send(message{kind: msgGet, channel: a.Channel - 1, size: a.Size})
		if s.m.rules.askTwice {
			s.step(bufpool.Event{Did: bufpool.Ask})
		}
	case bufpool.Request:
		s.send(message{kind: msgFlush, refs: a.Refs, number: a.Transaction})
		for _, entry := range a.Refs {
			if ref := entry &^ protocol.FlushGiveBack; ref != entry && s.m.rules.earlyInvalidate {
				s.hand(bufpool.Action{Do: bufpool.Invalidate, Remote: s.pools.Remote(ref)})
			}
		}
	case bufpool.Reply:
		s.step(bufpool.Event{Did: bufpool.Reply})
		s.send(message{kind: msgFlushed, number: a.Transaction})
	case bufpool.Deregister:
		p := s.localPools[a.Local]
		p.gone = true
		for i := range p.windows {
			if p.windows[i].bound {
				s.m.fail("%s: pool %d is deregistered, and can be written through window %d", s.name, p.ref, i)
			}
		}
		delete(s.localPools, a.Local)
		s.step(bufpool.Event{Did: bufpool.Deregister, Local: a.Local})
	default:
		s.m.fail("%s: nobody carries out action %d", s.name, a.Do)
	}
}

// tick makes the pools look for unused ones.
func (s *side) tick(int) bool {
	if s.m.mode.Sends() || !s.m.flowing {
		return false
	}
	s.step(bufpool.Event{Kind: bufpool.Tick, Tight: s.m.one(2)})
	return true
}

// need is the event that a sender lacks an element.
func (s *side) need(c int) bool {
	if s.m.mode.Sends() || !s.m.flowing {
		return false
	}
	size := frameLengths[s.m.r.IntN(len(frameLengths))]
	s.step(bufpool.Event{Kind: bufpool.Needed, Channel: c + 1, Size: size, Now: time.Unix(int64(s.m.steps), 0)})
	return true
}

// rescue tells the peer what was sent on a channel without credits.
func (s *side) rescue(c int) bool {
	ch := s.channels[c]
	if !s.m.mode.Lossy() || s.m.rules.noSent || !ch.dry() {
		return false
	}
	// Without new frames, only if something is missing. Otherwise the model would never come to
	// rest.
	if !s.m.flowing && (s.peer.channels[c].expected == ch.next || s.mine > 0 || len(ch.net) > 0) {
		return false
	}
	return s.request(requestSent, c)
}

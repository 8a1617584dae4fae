package bufpool

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/splitnic/splitnic/protocol"
)

// Step handles an event and appends the actions to out. An error means that the peer has
// broken the protocol.
func (p *Pools) Step(e *Event, out []Action) ([]Action, error) {
	out, err := p.step(e, out)
	if p.ending && err == nil {
		out = p.endNext(out)
	}
	return out, err
}

// endNext starts to end the pools that can end now, at the end of the session: the local and
// the remote ones. Those with the largest elements are the last, because a sender drops a
// frame that fits none of its pools.
func (p *Pools) endNext(out []Action) []Action {
	if len(p.ownFlush.stopping)+len(p.ownFlush.remote) == 0 {
		var next []*Remote
		for _, ref := range slices.Sorted(maps.Keys(p.remote)) {
			if r := p.remote[ref]; r.state == remoteInUse && !r.keyless {
				next = append(next, r)
			}
		}
		slices.SortStableFunc(next, func(a, b *Remote) int { return cmp.Compare(a.ElementSize(), b.ElementSize()) })
		out = p.stop(next[:min(len(next), protocol.MaxFlushPools)], out)
	}
	if !p.ownFlush.awaited {
		var next []*Local
		for _, l := range p.local {
			if l != nil && l.state == localOffered {
				next = append(next, l)
			}
		}
		slices.SortStableFunc(next, func(a, b *Local) int {
			return cmp.Compare(a.Elements.ElementSize(), b.Elements.ElementSize())
		})
		if len(next) > 0 {
			return p.flushLocal(next[:min(len(next), protocol.MaxFlushPools)], out)
		}
	}
	return out
}

func (p *Pools) step(e *Event, out []Action) ([]Action, error) {
	switch e.Kind {
	case Done:
		return p.follow(e, out), nil
	case Failed:
		p.count.Refused++
		p.local[e.Local.Ref] = nil
	case Invalidated:
		return p.invalidated(e.Local, out)
	case Lent:
		return p.addRemote(e.Remote, out)
	case Keyed:
		return p.keyed(e.Channel, e.Key, out)
	case Needed:
		return p.ask(e, out), nil
	case Get:
		return p.lend(e, out), nil
	case Flush:
		return p.flush(e, out)
	case FlushReply:
		return p.replied(e.Transaction, out)
	case Tick:
		return p.stopIdle(p.flushIdle(e.Tight, out)), nil
	case Ending:
		p.ending = true
	}
	return out, nil
}

// follow continues with what follows an action that is carried out.
func (p *Pools) follow(e *Event, out []Action) []Action {
	l := e.Local
	switch e.Did {
	case Adopt:
		switch {
		case l.KeyFollows(p.cfg.KeySend):
			return p.offer(l, append(out, Action{Do: BindSend, Local: l}))
		case len(l.Windows) > 0:
			return append(out, Action{Do: Bind, Local: l})
		}
		return p.ready(l, out)
	case Drain:
		return p.drained(l, out)
	case Bind:
		return p.ready(l, out)
	case Unbind:
		return append(out, Action{Do: Deregister, Local: l})
	case Stop:
		return p.stopped(e.Remote, e.Last, out)
	case Make:
		p.count.Granted++
		return append(out, Action{Do: Adopt, Local: l})
	case SendKeys:
		p.unsent = slices.Delete(p.unsent, 0, 1)
		return p.sendKeys(p.offer(l, out))
	case Ask:
		p.asked.open = false
	case Reply:
		p.peerFlush.out = false // before the reply, after which the peer may send another request
	case Deregister:
		p.count.Returned++
		p.local[l.Ref] = nil
	case BindSend, Use, Invalidate, Offer, Request, Consume, Revoke, Rebind: // nothing follows
	}
	return out
}

// replied handles the reply to this side's flush request. With its next message the peer may
// use the references of pools that were given back.
func (p *Pools) replied(transaction uint64, out []Action) ([]Action, error) {
	own := &p.ownFlush
	if !own.awaited || transaction != own.latest {
		return out, fmt.Errorf("%w: flush %#x", ErrReply, transaction)
	}
	remote, local := own.remote, own.local
	own.awaited, own.remote, own.local = false, nil, nil
	for _, r := range remote {
		p.close(r)
		if r.Invalidate {
			// After the reply, so that the peer expects the message.
			out = append(out, Action{Do: Invalidate, Remote: r})
		}
	}
	for _, l := range local {
		if l.state == localFlushing { // otherwise the peer has returned it by itself
			out = p.drain(l, out)
		}
	}
	return p.flushRemote(out), nil
}

// flush handles the peer's flush request: it has stopped using local pools, or takes back
// remote ones.
func (p *Pools) flush(e *Event, out []Action) ([]Action, error) {
	if p.peerFlush.out {
		return out, fmt.Errorf("%w: %#x", ErrTooManyFlushes, e.Transaction)
	}
	p.peerFlush = peerFlush{out: true, transaction: e.Transaction, left: len(e.Refs)}
	for _, ref := range e.Refs {
		if ref&protocol.FlushGiveBack == 0 {
			r := p.remote[ref]
			if r == nil || r.state == remoteClosed {
				return out, fmt.Errorf("%w: flush of pool %d", ErrPool, ref)
			}
			p.close(r)
			p.peerFlush.pools++
			p.peerFlush.elements += r.Len()
			if !r.keyless {
				out = append(out, Action{Do: Stop, Remote: r, Last: true})
			}
			continue
		}
		ref &^= protocol.FlushGiveBack
		var l *Local
		if int(ref) < len(p.local) {
			l = p.local[ref]
		}
		if l == nil || l.state != localOffered && l.state != localFlushing {
			return out, fmt.Errorf("%w: flush of pool %d", ErrPool, ref)
		}
		l.answers = true
		out = p.drain(l, out)
	}
	return out, nil
}

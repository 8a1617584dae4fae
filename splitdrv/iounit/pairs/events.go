package pairs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// Set sets the facts of a host. The host may be a new one.
func (p *Pairs) Set(now time.Time, h Host, f Facts) []Action {
	x := p.hosts[h]
	if x == nil {
		x = &host{}
		p.hosts[h] = x
	} else if x.equal(&f) {
		return nil
	}
	p.listeners.change(x.Promisc, f.Promisc)
	listening := f.Promisc && !x.Promisc
	x.Facts = f
	p.forget(h)
	if listening {
		for _, o := range slices.Sorted(maps.Keys(p.hosts)) {
			p.review(now, o)
		}
	}
	p.review(now, h)
	p.matchAll(now, h)
	return p.done()
}

// Leave removes a host. Its session has ended.
func (p *Pairs) Leave(now time.Time, h Host) []Action {
	x := p.hosts[h]
	if x == nil {
		return nil
	}
	p.listeners.change(x.Promisc, false)
	p.forget(h)
	for _, q := range slices.Clone(x.pairs) {
		own, _ := q.of(h)
		own.gone = true
		if q.step != Ending {
			p.end(now, q, Gone, h, "")
		}
		p.ended(q, own)
	}
	p.unclaim(func(c *claim) bool { return c.host == h })
	delete(p.hosts, h)
	return p.done()
}

// Heard handles a message of a host.
func (p *Pairs) Heard(now time.Time, h Host, d *session.Direct) []Action {
	if p.hosts[h] == nil {
		return nil
	}
	if err := p.hear(now, h, d); err != nil {
		p.out = append(p.out, Action{To: h, Broken: fmt.Errorf("direct connection %v: %w", d.ID, err)})
	}
	return p.done()
}

func (p *Pairs) hear(now time.Time, h Host, d *session.Direct) error {
	q := p.byID[d.ID]
	var own, other *side
	if q != nil {
		own, other = q.of(h)
	}
	switch {
	case d.Step == session.DirectHeld:
		return p.held(now, h, d, own != nil)
	case own == nil:
		p.stray(h, d)
		return nil
	case q.step == Ending:
		return p.hearEnding(q, own, d)
	}
	unexpected := fmt.Errorf("%q where it is %s: %w", d.Step, q.step, session.ErrUnexpected)
	switch d.Step {
	case session.DirectAccept:
		if q.step != Offered || own.accept != nil {
			return unexpected
		}
		if least := protocol.ControlReceives(q.terms.mode, 1, q.terms.pools); d.ControlReceives < least {
			return fmt.Errorf("%d control receives, must be at least %d: %w", d.ControlReceives, least, session.ErrMessage)
		}
		own.accept = d
		if other.accept != nil {
			p.connect(now, q)
		}
	case session.DirectReady:
		if q.step != Connecting || own.ready {
			return unexpected
		}
		own.ready = true
		if other.ready {
			p.start(now, q)
		}
	case session.DirectEnd:
		cause := ByHost
		if q.start.IsZero() {
			cause = Refused
		}
		p.end(now, q, cause, h, d.Reason)
	default: // ended
		return unexpected
	}
	return nil
}

// hearEnding is hear for a pair in step Ending. Messages that the host has sent before it
// knew of the end are ignored.
func (p *Pairs) hearEnding(q *pair, own *side, d *session.Direct) error {
	if own.ended {
		return fmt.Errorf("%q after %q: %w", d.Step, session.DirectEnded, session.ErrUnexpected)
	}
	if d.Step == session.DirectEnded {
		p.ended(q, own)
	}
	return nil
}

// stray handles a message about an unknown connection. The message has crossed the end of the
// connection, or concerns a connection that the host holds.
func (p *Pairs) stray(h Host, d *session.Direct) {
	held := p.unclaim(func(c *claim) bool { return c.id == d.ID && c.host == h && d.Step == session.DirectEnd })
	if !held {
		p.counts.Stray++
		return
	}
	p.send(h, &session.Direct{Step: session.DirectEnded, ID: d.ID})
}

// Tick does everything that is due.
func (p *Pairs) Tick(now time.Time) []Action {
	if p.wake.IsZero() || now.Before(p.wake) {
		return nil
	}
	p.wake = time.Time{}
	late := slices.SortedFunc(maps.Keys(p.due), func(a, b *pair) int { return cmp.Compare(a.id, b.id) })
	for _, q := range late {
		switch {
		case now.Before(q.due):
			p.sleep(q.due)
		case q.step == Ending:
			for i := range q.sides {
				if !q.sides[i].ended {
					p.counts.Unanswered++
				}
				p.ended(q, &q.sides[i])
			}
		default:
			p.end(now, q, Timeout, noHost, "")
		}
	}
	p.expire(now)
	return p.done()
}

// review ends the pairs of a host that are not permitted any more, or only with other terms.
func (p *Pairs) review(now time.Time, h Host) {
	for _, q := range slices.Clone(p.hosts[h].pairs) {
		if q.step == Ending {
			continue
		}
		terms, why := p.permitted(q.sides[0].host, q.sides[1].host)
		if why == "" {
			why = q.terms.differ(&terms)
		}
		if why != "" {
			p.end(now, q, why, noHost, "")
		}
	}
}

// forget removes the causes of the pairs of a host that have no connection.
func (p *Pairs) forget(h Host) {
	for k := range p.why {
		if k[0] == h || k[1] == h {
			delete(p.why, k)
		}
	}
}

package pairs

import (
	"slices"
	"time"

	"github.com/splitnic/splitnic/splitdrv/session"
)

// offer makes a pair of two hosts that may have a connection with terms t, and sends the
// offer to both.
func (p *Pairs) offer(now time.Time, a, b Host, t *terms) {
	if p.hosts[b].Platform < p.hosts[a].Platform {
		a, b = b, a
		t.peers[0], t.peers[1] = t.peers[1], t.peers[0]
	}
	q := p.add(now, p.newID(), Offered, a, b, t)
	p.counts.Offers++
	secret := p.cfg.Secret()
	for i := range q.sides {
		p.send(q.sides[i].host, &session.Direct{
			Step: session.DirectOffer, ID: q.id, Peer: &q.terms.peers[i], Mode: t.mode, MTU: t.mtu, Pools: t.pools,
			Features: t.features, Cipher: t.cipher, Secret: &secret, First: i == 0,
		})
	}
	p.wait(q, now.Add(p.cfg.Answer))
}

func (p *Pairs) add(now time.Time, id session.DirectID, step Step, a, b Host, t *terms) *pair {
	q := &pair{id: id, step: step, since: now, terms: *t, sides: [2]side{{host: a}, {host: b}}}
	q.rest = restKeyOf(&p.hosts[a].Facts, &p.hosts[b].Facts)
	p.byID[q.id] = q
	p.hosts[a].pairs = append(p.hosts[a].pairs, q)
	p.hosts[b].pairs = append(p.hosts[b].pairs, q)
	delete(p.why, q.key())
	return q
}

// newID returns an identifier that no pair and no claim has.
func (p *Pairs) newID() session.DirectID {
	for {
		id := p.cfg.NewID()
		if id != 0 && p.byID[id] == nil && p.claims[id] == nil {
			return id
		}
	}
}

func (p *Pairs) connect(now time.Time, q *pair) {
	q.enter(now, Connecting)
	p.wait(q, now.Add(p.cfg.Answer))
	for i := range q.sides {
		from := q.sides[1-i].accept
		p.send(q.sides[i].host, &session.Direct{
			Step: session.DirectConnect, ID: q.id, ControlReceives: from.ControlReceives, Channels: from.Channels,
		})
	}
}

func (p *Pairs) start(now time.Time, q *pair) {
	q.enter(now, Started)
	q.start, q.due = now, time.Time{}
	delete(p.due, q)
	p.counts.Starts++
	for i := range q.sides {
		q.sides[i].accept = nil
		p.send(q.sides[i].host, &session.Direct{Step: session.DirectStart, ID: q.id})
	}
}

// end starts the end of a connection. by is the host that has ended it or has left, and that
// needs no message, or noHost.
func (p *Pairs) end(now time.Time, q *pair, why Cause, by Host, reason string) {
	if reason == "" {
		reason = string(why)
	}
	q.enter(now, Ending)
	q.cause = why
	p.counts.Ends[why]++
	p.wait(q, now.Add(p.cfg.Answer))
	for i := range q.sides {
		if s := &q.sides[i]; s.host != by {
			p.send(s.host, &session.Direct{Step: session.DirectEnd, ID: q.id, Reason: reason})
		}
	}
	if q.charged(now, why) {
		p.rests.begin(now, q.rest, p.cfg.Rest, !q.start.IsZero() && now.Sub(q.start) >= lasted)
	}
}

// charged reports whether two hosts have to rest after the end of a connection. A host has
// caused it: it has ended the connection, has not answered, or has changed, or left, while
// the connection had not started or was young. What the I/O unit and its policy cause is not
// charged.
func (q *pair) charged(now time.Time, why Cause) bool {
	switch why {
	case Refused, ByHost, Timeout:
		return true
	default:
	}
	young := q.start.IsZero() || now.Sub(q.start) < least
	return young && slices.Contains([]Cause{Address, VLANs, Name, MTU, Offloads, Mode, Promiscuous, Down, Gone}, why)
}

// ended tells the other side that no more frames come from own: own has said so, has left, or
// has not answered in time. When both sides have ended, the pair is removed.
func (p *Pairs) ended(q *pair, own *side) {
	if own.ended {
		return
	}
	own.ended = true
	_, other := q.of(own.host)
	if !other.gone {
		p.send(other.host, &session.Direct{Step: session.DirectEnded, ID: q.id})
	}
	if !other.ended {
		return
	}
	delete(p.byID, q.id)
	delete(p.due, q)
	for i := range q.sides {
		if x := p.hosts[q.sides[i].host]; x != nil {
			x.pairs = slices.DeleteFunc(x.pairs, func(o *pair) bool { return o == q })
		}
	}
}

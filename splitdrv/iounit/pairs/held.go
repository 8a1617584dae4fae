package pairs

import (
	"fmt"
	"slices"
	"time"

	"github.com/splitnic/splitnic/splitdrv/session"
)

// held adds a claim: the host has reported a connection from before its session. The claim
// waits for that of the other host. here says that this I/O unit directs a connection of this
// host with this identifier.
func (p *Pairs) held(now time.Time, h Host, d *session.Direct, here bool) error {
	for _, c := range p.claims[d.ID] {
		here = here || c.host == h
	}
	if here {
		return fmt.Errorf("%q of what there is: %w", d.Step, session.ErrUnexpected)
	}
	x := p.hosts[h]
	c := &claim{id: d.ID, host: h, other: d.Platform, due: now.Add(p.cfg.Grace)}
	switch {
	case p.byID[d.ID] != nil: // it was made here, and has ended with the host's earlier session
		p.deny(c, Gone)
		return nil
	case x.claims+len(x.pairs) >= p.cfg.Peers:
		p.deny(c, Full)
		return nil
	}
	p.claims[d.ID] = append(p.claims[d.ID], c)
	x.claims++
	p.sleep(c.due)
	p.match(now, c)
	return nil
}

// match makes a pair of a claim and that of the other host, if there is one and the
// connection is permitted. If it is not permitted, match denies the claims.
func (p *Pairs) match(now time.Time, c *claim) {
	own := p.hosts[c.host]
	if why := p.denied(c); why != "" {
		p.unclaim(func(o *claim) bool { return o == c })
		p.deny(c, why)
		return
	}
	if p.WhyNot(c.host) != "" {
		return
	}
	var with *claim
	for _, o := range p.claims[c.id] {
		if x := p.hosts[o.host]; o != c && x.Platform == c.other && own.Platform == o.other && own.Platform != 0 {
			with = o
		}
	}
	if with == nil {
		return
	}
	a, b := c.host, with.host
	if p.hosts[b].Platform < own.Platform {
		a, b = b, a
	}
	terms, why := p.permitted(a, b)
	switch {
	case why.passes():
		return
	case why == "" && p.hosts[a].with(b) != nil:
		why = Full
	}
	p.unclaim(func(o *claim) bool { return o == c || o == with })
	if why != "" {
		p.deny(c, why)
		p.deny(with, why)
		return
	}
	q := p.add(now, c.id, Started, a, b, &terms)
	q.start = now
	p.counts.Starts++
	p.counts.Kept++
	for i := range q.sides {
		p.send(q.sides[i].host, &session.Direct{Step: session.DirectKeep, ID: q.id, Peer: &q.terms.peers[i]})
	}
}

// denied returns why a host may not continue a held connection, whether or not the other host
// claims it. It returns "" if there is no reason so far.
func (p *Pairs) denied(c *claim) Cause {
	if why := p.WhyNot(c.host); why != "" {
		return why.lasting()
	}
	for h, x := range p.hosts {
		if h == c.host || x.Platform != c.other {
			continue
		}
		if _, why := p.permitted(c.host, h); why.lasting() != "" {
			return why
		}
	}
	return ""
}

// matchAll calls match for all claims by a host, and for those by other hosts to a connection
// with it.
func (p *Pairs) matchAll(now time.Time, h Host) {
	x := p.hosts[h]
	for _, c := range p.claims.of(func(c *claim) bool { return c.host == h || c.other == x.Platform }) {
		if slices.Contains(p.claims[c.id], c) { // an earlier match has not removed it
			p.match(now, c)
		}
	}
}

// deny ends a held connection of a host. It also sends the host DirectEnded for the other host,
// which is not there to send it.
func (p *Pairs) deny(c *claim, why Cause) {
	p.counts.Ends[why]++
	p.send(c.host, &session.Direct{Step: session.DirectEnd, ID: c.id, Reason: string(why)})
	p.send(c.host, &session.Direct{Step: session.DirectEnded, ID: c.id})
}

// expire denies the claims that are due: the other host has not claimed the connection in
// time.
func (p *Pairs) expire(now time.Time) {
	late := func(c *claim) bool { return !now.Before(c.due) }
	for _, c := range p.claims.of(late) {
		p.deny(c, Unconfirmed)
	}
	p.unclaim(late)
	for _, all := range p.claims {
		for _, c := range all {
			p.sleep(c.due)
		}
	}
}

// unclaim removes the claims for which which returns true, and reports whether there were any.
func (p *Pairs) unclaim(which func(*claim) bool) bool {
	all := p.claims.of(which)
	for _, c := range all {
		p.hosts[c.host].claims--
		left := p.claims[c.id][:0:0]
		for _, o := range p.claims[c.id] {
			if o != c {
				left = append(left, o)
			}
		}
		if p.claims[c.id] = left; len(left) == 0 {
			delete(p.claims, c.id)
		}
	}
	return len(all) > 0
}

package pairs

import (
	"slices"
	"time"
)

// Flow is how many packets one host has sent another through the I/O unit.
type Flow struct {
	From, To Host
	Packets  uint64
}

// leastSpan is how much of the past is looked at, at least: one burst is no flow.
const leastSpan = 200 * time.Millisecond

// Traffic says what has flowed from one time to another, in both directions, and offers
// connections to those two hosts each between whom it was enough.
func (p *Pairs) Traffic(from, now time.Time, all []Flow) []Action {
	last := p.flows
	if last.to != from {
		last = flows{from: from}
	}
	p.flows = flows{from: from, to: now, packets: make(map[key]uint64)}
	var order []key
	for _, f := range all {
		if f.From == f.To || p.hosts[f.From] == nil || p.hosts[f.To] == nil || f.Packets == 0 {
			continue
		}
		k := keyOf(f.From, f.To)
		if p.flows.packets[k] == 0 {
			order = append(order, k)
		}
		p.flows.packets[k] += f.Packets
	}
	span := max(now.Sub(last.from), leastSpan)
	for _, k := range order {
		packets := p.flows.packets[k] + last.packets[k]
		if float64(packets) >= float64(p.cfg.After)*span.Seconds() {
			p.ask(now, k)
		}
	}
	return p.done()
}

// ask offers two hosts a connection, if they have none and may, or says why not.
func (p *Pairs) ask(now time.Time, k key) {
	a, b := k[0], k[1]
	if p.hosts[a].with(b) != nil || p.hosts[a].opens() || p.hosts[b].opens() {
		return
	}
	terms, why := p.permitted(a, b)
	if why == "" && now.Before(p.hosts[a].rests[b].until) {
		why = Resting
	}
	if why == "" && (!p.room(now, a) || !p.room(now, b)) {
		why = Full
	}
	if why == "" {
		p.offer(now, a, b, &terms)
		return
	}
	if _, ok := p.why[k]; ok || len(p.why) < notes {
		p.why[k] = why
	}
}

// room reports whether a host may have one more connection. If not, the oldest one
// ends that has lasted for a while, and makes room for the next time.
func (p *Pairs) room(now time.Time, h Host) bool {
	x := p.hosts[h]
	if len(x.pairs)+x.claims < p.cfg.Peers {
		return true
	}
	if slices.ContainsFunc(x.pairs, func(q *pair) bool { return q.step == Ending }) {
		return false // it is being made
	}
	for _, q := range x.pairs {
		if q.step == Started && now.Sub(q.start) >= least {
			p.end(now, q, Full, noHost, "")
			return false
		}
	}
	return false
}

package pairs

import (
	"slices"
	"time"
)

// Flow is the number of packets that one host has sent to another through the I/O unit.
type Flow struct {
	From, To Host
	Packets  uint64
}

// leastSpan is the shortest time over which a rate is measured. A single burst is not taken
// for a flow.
const leastSpan = 200 * time.Millisecond

// Traffic handles the flows between two points in time, and offers connections to hosts whose
// rate, in both directions together, is high enough.
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

// ask offers two hosts a connection if they have none and may have one. If they may not, ask
// keeps the cause.
func (p *Pairs) ask(now time.Time, k key) {
	a, b := k[0], k[1]
	if p.hosts[a].with(b) != nil || p.hosts[a].opens() || p.hosts[b].opens() {
		return
	}
	terms, why := p.permitted(a, b)
	if why == "" && now.Before(p.rests[restKeyOf(&p.hosts[a].Facts, &p.hosts[b].Facts)].until) {
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

// room reports whether a host may have one more connection. If it may not, room ends the
// oldest connection that has existed for the time least, so that there is room next time.
func (p *Pairs) room(now time.Time, h Host) bool {
	x := p.hosts[h]
	if len(x.pairs)+x.claims < p.cfg.Peers {
		return true
	}
	if slices.ContainsFunc(x.pairs, func(q *pair) bool { return q.step == Ending }) {
		return false // a connection is ending already
	}
	for _, q := range x.pairs {
		if q.step == Started && now.Sub(q.start) >= least {
			p.end(now, q, Full, noHost, "")
			return false
		}
	}
	return false
}

// Package pairs directs the direct connections between the hosts of an I/O unit: it
// decides which two get one, leads both through the steps, and withdraws it.
//
// A pair goes through the steps
//
//	Offered     both hosts have an offer, and make queue pairs
//	Connecting  both have the other's addresses, and connect
//	Started     frames take the direct path
//	Ending      until both have said that nothing comes any more
//
// and begins with Started when both held a connection that another I/O unit had
// directed. It ends when one of the hosts says so, is gone, or does not answer in
// time; and at once when the I/O unit does not permit it any more.
//
// The methods are events. They return what is to be done, as Actions, and do nothing
// themselves: there is no goroutine, lock, clock or randomness here.
package pairs

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// Host is a session, by a number of the caller's, which no other session gets.
type Host int

// Step says how far a pair is.
type Step string

// The steps.
const (
	Offered    Step = "offered"
	Connecting Step = "connecting"
	Started    Step = "started"
	Ending     Step = "ending"
)

// Config bounds what is done. All values are above 0, but for After.
type Config struct {
	After  int           // packets a second between two hosts from which on they get one; 0: the first packet
	Peers  int           // direct connections of a host at a time
	Answer time.Duration // for what a host has to do
	Grace  time.Duration // until the other host of a held connection has come
	NewID  func() session.DirectID
	Secret func() session.DirectSecret
}

const (
	// opening bounds the pairs of a host that are between offer and start at a time, so
	// that one that has many peers is not asked for all queue pairs at once, and one that
	// does not answer is in nobody's way for long.
	opening = 8
	// least is how long a connection lasts at least until another one takes its place.
	least = 10 * time.Second
	// A pair rests after an end by failure, twice as long each time; from the
	// beginning when the connection had lasted.
	firstRest   = time.Second
	longestRest = time.Minute
	lasted      = time.Minute
	// mostPools are those that each side lends.
	mostPools = 4
	// notes bounds the pairs of which is said why they have no connection.
	notes = 256
)

// Action is a message to a host, or the end of the session of one that has broken the
// protocol.
type Action struct {
	To      Host
	Message *session.Direct // nil if Broken is not
	Broken  error
}

// Counts count since the beginning.
type Counts struct {
	Offers uint64
	Starts uint64
	Kept   uint64           // held ones, which are among the starts
	Stray  uint64           // messages about unknown connections, or ended ones
	Ends   map[Cause]uint64 // of all that were offered, kept or held
	// Unanswered counts hosts that have not said in time that nothing comes any more.
	Unanswered uint64
}

// Pairs are the pairs of an I/O unit.
type Pairs struct {
	agenda
	outbox
	cfg       Config
	hosts     map[Host]*host
	byID      map[session.DirectID]*pair
	claims    claims
	listeners listeners
	why       map[key]Cause
	flows     flows
	counts    Counts
}

// agenda is what is waited for.
type agenda struct {
	due  map[*pair]struct{} // that wait for an answer
	wake time.Time          // not after the first time that something is due; zero if nothing is
}

// Wake is when Tick is due, or before; zero: never.
func (a *agenda) Wake() time.Time { return a.wake }

// wait has a pair wait for its hosts.
func (a *agenda) wait(q *pair, until time.Time) {
	q.due = until
	a.due[q] = struct{}{}
	a.sleep(until)
}

// sleep makes Tick due.
func (a *agenda) sleep(until time.Time) {
	if a.wake.IsZero() || until.Before(a.wake) {
		a.wake = until
	}
}

// outbox has the actions that follow from an event.
type outbox struct{ out []Action }

func (o *outbox) send(to Host, d *session.Direct) { o.out = append(o.out, Action{To: to, Message: d}) }

func (o *outbox) done() []Action {
	out := o.out
	o.out = nil
	return out
}

// listeners is how many hosts are in promiscuous mode.
type listeners int

// change counts a host that was in promiscuous mode before or not, and is now or not.
func (l *listeners) change(before, now bool) {
	if before {
		*l--
	}
	if now {
		*l++
	}
}

type host struct {
	Facts
	pairs  []*pair // in the order in which they were made
	claims int
	rests  map[Host]rest
}

// with is the pair of a host and another one, nil if there is none.
func (x *host) with(other Host) *pair {
	for _, q := range x.pairs {
		if own, _ := q.of(other); own != nil {
			return q
		}
	}
	return nil
}

// opens reports whether a host has as many connections between offer and start as it
// gets at a time.
func (x *host) opens() bool {
	n := 0
	for _, q := range x.pairs {
		if q.start.IsZero() && q.step != Ending {
			n++
		}
	}
	return n >= opening
}

// key is two hosts, in ascending order.
type key [2]Host

func keyOf(a, b Host) key { return key{min(a, b), max(a, b)} }

// rest is when a pair gets its next offer.
type rest struct {
	until time.Time
	next  time.Duration
}

// pair is a direct connection. It belongs to both hosts until both have ended it, or
// have left.
type pair struct {
	id    session.DirectID
	step  Step
	since time.Time // of the step
	start time.Time // zero if it has not started
	due   time.Time // zero: it does not wait
	terms terms
	sides [2]side // the first one has the place of the host in the proofs
	cause Cause   // of its end
}

type side struct {
	host   Host
	gone   bool
	accept *session.Direct
	ready  bool
	ended  bool
}

func (q *pair) key() key { return keyOf(q.sides[0].host, q.sides[1].host) }

// of is the side of a host and the other one; nil if it is not one of them.
func (q *pair) of(h Host) (own, other *side) {
	switch h {
	case q.sides[0].host:
		return &q.sides[0], &q.sides[1]
	case q.sides[1].host:
		return &q.sides[1], &q.sides[0]
	default:
		return nil, nil
	}
}

func (q *pair) enter(now time.Time, s Step) { q.step, q.since = s, now }

// rest has the two hosts wait for their next offer.
func (q *pair) rest(now time.Time, hosts map[Host]*host) {
	a, b := q.sides[0].host, q.sides[1].host
	r := hosts[a].rests[b]
	if r.next == 0 || !q.start.IsZero() && now.Sub(q.start) >= lasted {
		r.next = firstRest
	}
	r = rest{until: now.Add(r.next), next: min(2*r.next, longestRest)}
	hosts[a].rests[b], hosts[b].rests[a] = r, r
}

// New makes a Pairs without hosts.
func New(cfg Config) *Pairs {
	return &Pairs{
		cfg: cfg, agenda: agenda{due: make(map[*pair]struct{})}, hosts: make(map[Host]*host),
		byID: make(map[session.DirectID]*pair), claims: make(claims), why: make(map[key]Cause),
		counts: Counts{Ends: make(map[Cause]uint64)},
	}
}

// noHost is none.
const noHost Host = -1

// Counts is what was counted.
func (p *Pairs) Counts() Counts {
	c := p.counts
	c.Ends = maps.Clone(c.Ends)
	return c
}

// Pair is what is shown of two hosts.
type Pair struct {
	ID    session.DirectID // 0 if they have no connection
	Hosts [2]Host
	Step  Step
	Since time.Time
	Mode  protocol.Mode
	Why   Cause // there is none, or it ends
}

// List are the pairs, and those two hosts each that exchange frames and have none.
func (p *Pairs) List() []Pair {
	var all []Pair
	for _, q := range p.byID {
		all = append(all, Pair{q.id, q.key(), q.step, q.since, q.terms.mode, q.cause})
	}
	for k, why := range p.why {
		all = append(all, Pair{Hosts: k, Why: why})
	}
	slices.SortFunc(all, func(a, b Pair) int {
		return cmp.Or(slices.Compare(a.Hosts[:], b.Hosts[:]), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// WhyNot is why a host has no direct connections, "" if it may.
func (p *Pairs) WhyNot(h Host) Cause {
	x := p.hosts[h]
	switch {
	case x == nil:
		return Opening
	case x.No == "" && p.listeners > 0:
		return Promiscuous
	default:
		return x.No
	}
}

// claim is a host's word that it goes on with a connection from before its session.
type claim struct {
	id    session.DirectID
	host  Host
	other protocol.Platform
	due   time.Time
}

// claims are those of all hosts.
type claims map[session.DirectID][]*claim

// of are some of the claims.
func (cs claims) of(which func(*claim) bool) (some []*claim) {
	for _, all := range cs {
		for _, c := range all {
			if which(c) {
				some = append(some, c)
			}
		}
	}
	return some
}

// flows are those of the latest period.
type flows struct {
	from, to time.Time
	packets  map[key]uint64
}

// permitted are the terms of a connection between two hosts, or why there may be none.
func (p *Pairs) permitted(a, b Host) (t terms, why Cause) {
	x, y := &p.hosts[a].Facts, &p.hosts[b].Facts
	switch {
	case x.No != "":
		return t, x.No
	case y.No != "":
		return t, y.No
	case p.listeners > 0:
		return t, Promiscuous
	case x.Platform == y.Platform:
		return t, Platform
	case !x.permits(y) || !y.permits(x):
		return t, Policy
	case slices.ContainsFunc(x.MACs, func(m protocol.MAC) bool { return slices.Contains(y.MACs, m) }):
		return t, Shared
	case x.MTU != y.MTU:
		return t, MTU
	case x.Offloads != y.Offloads:
		return t, Offloads
	}
	if t.mode = commonMode(x, y); t.mode == "" {
		return t, Mode
	}
	t.mtu, t.pools = x.MTU, min(mostPools, x.Pools, y.Pools, t.mode.MaxPools())
	for _, f := range x.Features {
		if slices.Contains(y.Features, f) {
			t.features = append(t.features, f)
		}
	}
	var vlans protocol.VLANSet
	for i := range vlans {
		vlans[i] = x.VLANs[i] & y.VLANs[i]
	}
	t.peers[0] = session.DirectPeer{Platform: y.Platform, Name: y.Name, MACs: y.MACs, Own: x.MACs, VLANs: vlans}
	t.peers[1] = session.DirectPeer{Platform: x.Platform, Name: x.Name, MACs: x.MACs, Own: y.MACs, VLANs: vlans}
	return t, ""
}

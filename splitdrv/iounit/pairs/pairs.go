// Package pairs controls the direct connections between the hosts of an I/O unit. It decides
// which two hosts get a connection, takes both through the steps, and withdraws connections.
//
// A pair goes through the steps
//
//	Offered     both hosts have an offer, and make queue pairs
//	Connecting  both hosts have the addresses of the other's queue pairs, and connect
//	Started     frames take the direct path
//	Ending      until both hosts have said that no more frames come
//
// A pair begins with Started if both hosts held a connection that another I/O unit has
// directed. A pair ends when one of the hosts ends it, leaves, or does not answer in time. It
// ends at once when the I/O unit does not permit it any more.
//
// The methods are events. They return the resulting actions as Actions and do nothing else:
// the package has no goroutines, locks, clock or randomness.
package pairs

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// Host is the number of a session, chosen by the caller. No other session ever gets the same.
type Host int

// Step is the step that a pair is in.
type Step string

// The steps.
const (
	Offered    Step = "offered"
	Connecting Step = "connecting"
	Started    Step = "started"
	Ending     Step = "ending"
)

// Config has the limits. All values are above 0, except that After may be 0.
type Config struct {
	After  int           // packets per second from which on two hosts get one; 0: one packet
	Peers  int           // largest number of direct connections of a host at a time
	Answer time.Duration // time for each answer of a host
	Grace  time.Duration // time in which both hosts have to claim a held connection
	Rest   time.Duration // shortest pause before the next offer after an end that a host has caused
	NewID  func() session.DirectID
	Secret func() session.DirectSecret
}

const (
	// opening is the largest number of pairs of a host between offer and start at a time. A
	// host with many peers therefore need not make all queue pairs at once, and a host that
	// does not answer does not delay others for long.
	opening = 8
	// least is the shortest life of a connection before another one may take its place.
	least = 10 * time.Second
	// mostPools is the largest number of pools that each side lends.
	mostPools = 4
	// notes is the largest number of pairs without a connection whose cause is kept.
	notes = 256
)

// Action is a message to a host. If Broken is not nil, the host has broken the protocol, and
// the action is to end its session.
type Action struct {
	To      Host
	Message *session.Direct // nil if Broken is not nil
	Broken  error
}

// Counts has counters since New.
type Counts struct {
	Offers uint64
	Starts uint64
	Kept   uint64           // held connections that were continued; these are also in Starts
	Stray  uint64           // messages about unknown or ended connections
	Ends   map[Cause]uint64 // ends of connections that were offered, kept or held
	// Unanswered counts hosts that have not sent DirectEnded in time.
	Unanswered uint64
}

// Pairs has the hosts of an I/O unit, and the pairs of hosts.
type Pairs struct {
	agenda
	outbox
	cfg       Config
	hosts     map[Host]*host
	byID      map[session.DirectID]*pair
	claims    claims
	listeners listeners
	why       map[key]Cause
	rests     rests
	flows     flows
	counts    Counts
}

// agenda has the pairs that wait, and the time of the next Tick.
type agenda struct {
	due  map[*pair]struct{} // pairs that wait for an answer
	wake time.Time          // not after the time when Tick has something to do; zero: never
}

// Wake returns the time at which to call Tick, or zero if there is no need to. Tick may find
// nothing to do at that time.
func (a *agenda) Wake() time.Time { return a.wake }

// wait makes a pair wait for the answers of its hosts until the given time.
func (a *agenda) wait(q *pair, until time.Time) {
	q.due = until
	a.due[q] = struct{}{}
	a.sleep(until)
}

// sleep makes Tick due at the given time, or earlier.
func (a *agenda) sleep(until time.Time) {
	if a.wake.IsZero() || until.Before(a.wake) {
		a.wake = until
	}
}

// outbox collects the actions that result from an event.
type outbox struct{ out []Action }

func (o *outbox) send(to Host, d *session.Direct) { o.out = append(o.out, Action{To: to, Message: d}) }

func (o *outbox) done() []Action {
	out := o.out
	o.out = nil
	return out
}

// listeners is the number of hosts in promiscuous mode.
type listeners int

// change updates the number for a host. before and now say whether the host was, and is, in
// promiscuous mode.
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
	pairs  []*pair // in the order of their creation
	claims int
}

// with returns the pair of the host and another one, or nil if there is none.
func (x *host) with(other Host) *pair {
	for _, q := range x.pairs {
		if own, _ := q.of(other); own != nil {
			return q
		}
	}
	return nil
}

// opens reports whether the host has the largest number of connections between offer and
// start.
func (x *host) opens() bool {
	n := 0
	for _, q := range x.pairs {
		if q.start.IsZero() && q.step != Ending {
			n++
		}
	}
	return n >= opening
}

// key identifies two hosts, which are in ascending order.
type key [2]Host

func keyOf(a, b Host) key { return key{min(a, b), max(a, b)} }

// pair is a direct connection. It belongs to both hosts until each of them has ended it or
// has left.
type pair struct {
	id    session.DirectID
	step  Step
	since time.Time // beginning of the step
	start time.Time // zero if the connection has not started
	rest  restKey   // of the hosts when the connection was offered
	due   time.Time // zero if the pair does not wait
	terms terms
	sides [2]side // the first one has the role of the host in the proofs
	cause Cause   // of the end
}

type side struct {
	host   Host
	gone   bool
	accept *session.Direct
	ready  bool
	ended  bool
}

func (q *pair) key() key { return keyOf(q.sides[0].host, q.sides[1].host) }

// of returns the side of a host and the other side. Both are nil if h is not in the pair.
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

// New returns a Pairs without hosts.
func New(cfg Config) *Pairs {
	return &Pairs{
		cfg: cfg, agenda: agenda{due: make(map[*pair]struct{})}, hosts: make(map[Host]*host),
		byID: make(map[session.DirectID]*pair), claims: make(claims), why: make(map[key]Cause), rests: make(rests),
		counts: Counts{Ends: make(map[Cause]uint64)},
	}
}

const noHost Host = -1

// Counts returns a copy of the counters.
func (p *Pairs) Counts() Counts {
	c := p.counts
	c.Ends = maps.Clone(c.Ends)
	return c
}

// Pair describes the connection between two hosts, or why there is none.
type Pair struct {
	ID    session.DirectID // 0 if there is no connection
	Hosts [2]Host
	Step  Step
	Since time.Time
	Mode  protocol.Mode
	Why   Cause // why there is no connection, or why it ends
}

// List returns the pairs, and all two hosts that exchange frames without a connection.
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

// WhyNot returns why a host has no direct connections, or "" if it may have some.
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

// claim is a host's report that it has a connection from before its session.
type claim struct {
	id    session.DirectID
	host  Host
	other protocol.Platform
	due   time.Time
}

type claims map[session.DirectID][]*claim

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

// flows has the number of packets between each two hosts in the latest period.
type flows struct {
	from, to time.Time
	packets  map[key]uint64
}

// permitted returns the terms of a connection between two hosts, or why it is not permitted.
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
	if x.Encrypted || y.Encrypted {
		if t.cipher = seal.Choose(x.Ciphers, y.Ciphers); t.cipher == "" {
			return t, Encryption
		}
	}
	for _, f := range x.Features {
		if f == protocol.FeatureKeySend && t.cipher != "" {
			continue // its messages would not be encrypted
		}
		if slices.Contains(y.Features, f) {
			t.features = append(t.features, f)
		}
	}
	var vlans protocol.VLANSet
	for i := range vlans {
		vlans[i] = x.VLANs[i] & y.VLANs[i]
	}
	t.peers[0] = session.DirectPeer{Platform: y.Platform, Name: y.nameFor(x), MACs: y.MACs, Own: x.MACs, VLANs: vlans}
	t.peers[1] = session.DirectPeer{Platform: x.Platform, Name: x.nameFor(y), MACs: x.MACs, Own: y.MACs, VLANs: vlans}
	return t, ""
}

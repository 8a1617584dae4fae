package soak

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// side is one of the two endpoints.
type side int

const (
	host side = iota
	unit
)

func (s side) String() string { return [...]string{"host", "I/O unit"}[s] }
func (s side) other() side    { return 1 - s }

// fault is what ends a session, or keeps it from coming about.
type fault string

const (
	faultNone fault = "none" // all frames come, and one side closes

	// Of the handshake.
	faultStranger fault = "stranger" // somebody connects who is no host
	faultRefuse   fault = "refuse"   // the I/O unit refuses
	faultLeave    fault = "leave"    // one side gives up in one of the phases

	// In the middle of traffic.
	faultClose   fault = "close"   // one side closes
	faultLink    fault = "link"    // the bootstrap connection breaks
	faultQP      fault = "qp"      // a queue pair fails
	faultFrame   fault = "frame"   // a frame that breaks the protocol
	faultNetdev  fault = "netdev"  // a side's netdevice goes away
	faultKill    fault = "kill"    // the process of one side dies, fabric and all
	faultCut     fault = "cut"     // the fabric's cable is pulled
	faultPost    fault = "post"    // a post fails
	faultRequest fault = "request" // the device reports an error for a work request
	faultLoss    fault = "loss"    // an unreliable channel loses messages, and one side closes
	faultStall   fault = "stall"   // nothing moves any more, and one side closes
)

// everywhere are the faults that can be made on any fabric, and inMemory those
// that need one in memory.
var (
	everywhere = []fault{faultStranger, faultRefuse, faultLeave, faultLeave, faultClose, faultLink, faultQP, faultFrame,
		faultNetdev, faultPost}
	inMemory = []fault{faultKill, faultCut, faultRequest, faultLoss, faultStall}
)

// traffic reports whether f happens to an established session.
func (f fault) traffic() bool {
	return f != faultNone && f != faultStranger && f != faultRefuse && f != faultLeave
}

// The phases of the handshake in which a side can leave it.
const (
	phaseDialled   = iota // the host alone: authenticated, hello not sent
	phaseGreeted          // hello, or its answer, has been heard
	phaseBuilt            // the channels are made
	phaseExchanged        // the peer's addresses are known
	phaseConnected        // the queue pairs are connected
	phaseReady            // the session is established, nothing has been started
	phases
)

// scale is how much there is to a cycle.
type scale struct {
	frames  int  // most frames of one stream
	slots   int  // most send slots besides those that must be
	fabric  bool // the fabric can be troubled: it is in memory
	exactly int  // frames of each stream, whatever frames says
}

// plan is one cycle. Everything in it follows from the seed and its number.
type plan struct {
	number uint64
	mode   protocol.Mode
	queues int
	mtu    int
	cfg    [2]messaging.Config
	loose  [2]bool // the side's device does not enforce the bounds of windows
	key    uint64
	frames [2][]int // that each side sends, by queue
	limit  []int    // bytes of the longest frame, by queue

	fault  fault
	at     side // whom it happens to, or who makes it
	polite bool // whoever leaves says goodbye
	phase  int
	queue  int           // of the stream whose frames tell when it is time
	after  uint64        // frames of that stream
	drop   int           // messages that are lost
	delay  time.Duration // of everything
}

// kind is how frames are transferred, and how the memory is protected that
// they are written to, if it is memory that is lent.
type kind struct {
	mode       protocol.Mode
	protection messaging.Protection
}

// kinds are all of them.
func kinds() []kind {
	var all []kind
	for _, m := range protocol.Modes() {
		if m.Sends() {
			all = append(all, kind{mode: m})
			continue
		}
		for _, p := range messaging.Protections() {
			all = append(all, kind{m, p})
		}
	}
	return all
}

// kind is that of the frames that a side receives.
func (p *plan) kind(s side) kind { return kind{p.mode, p.cfg[s].Protection} }

// String is what the cycle does.
func (p *plan) String() string {
	s := fmt.Sprintf("cycle %d: mode %s, %d queues, MTU %d", p.number, p.mode, p.queues, p.mtu)
	if !p.mode.Sends() {
		s += fmt.Sprintf(", protection %s and %s", p.cfg[host].Protection, p.cfg[unit].Protection)
	}
	s += fmt.Sprintf(", fault %s", p.fault)
	switch {
	case p.fault == faultLeave:
		s += fmt.Sprintf(" of the %v in phase %d, polite %v", p.at, p.phase, p.polite)
	case p.fault.traffic():
		s += fmt.Sprintf(" at the %v when it has received %d frames on queue %d, polite %v", p.at, p.after, p.queue, p.polite)
	}
	return s
}

// newPlan makes cycle number of the run with that seed.
func newPlan(seed, number uint64, sc scale) *plan {
	modes := protocol.Modes()
	r := rand.New(rand.NewPCG(seed, number))
	one := func(n int) bool { return r.IntN(n) == 0 }
	p := &plan{number: number, key: r.Uint64(), mode: modes[r.IntN(len(modes))], queues: 1 + r.IntN(3), mtu: 1500}
	if one(4) {
		p.mtu = protocol.MaxMTU
	}
	latency := p.queues > 1 && one(4)
	noPack, invalidation, touch, keySend := one(3), !one(3), one(2), !one(3)
	for s := range p.cfg {
		p.cfg[s] = newConfig(r, p, sc)
		touch = touch || p.cfg[s].Protection == messaging.ProtectOneTouch
		p.loose[s] = sc.fabric && one(3)
	}
	for s := range p.cfg {
		p.cfg[s].LatencyQueue, p.cfg[s].NoPack = latency, noPack
		p.cfg[s].Invalidation, p.cfg[s].OneTouch, p.cfg[s].KeySend = invalidation, touch, keySend
	}
	// An unacknowledged message that is late is taken for lost.
	if sc.fabric && one(32) && p.mode != protocol.ModeSendUC {
		p.delay = time.Duration(r.IntN(200)) * time.Microsecond
	}
	p.fault, p.at, p.polite = faultNone, side(r.IntN(2)), one(2)
	faults := everywhere
	if sc.fabric {
		faults = slices.Concat(everywhere, inMemory)
	}
	if sc.exactly == 0 && one(2) {
		p.fault = faults[r.IntN(len(faults))]
	}
	if p.fault == faultLoss && p.mode != protocol.ModeSendUC {
		p.fault = faultClose
	}
	// Who accepts has heard the hello.
	p.phase = r.IntN(phases)
	if p.at == unit {
		p.phase = phaseGreeted + r.IntN(phases-phaseGreeted)
	}
	for q := range p.queues {
		p.limit = append(p.limit, p.longest(q))
	}
	for s := range p.frames {
		for range p.queues {
			n := r.IntN(sc.frames)
			if !one(8) {
				n /= 16
			}
			if sc.exactly > 0 {
				n = sc.exactly
			}
			p.frames[s] = append(p.frames[s], n+1)
		}
	}
	p.queue = r.IntN(p.queues)
	sent := p.frames[p.at.other()][p.queue]
	p.after = uint64(r.IntN(sent))
	if p.fault == faultLoss {
		// What remains is enough to reach the moment of the fault. A message is one
		// frame.
		p.drop = min(r.IntN(8), sent-1-int(p.after))
		p.cfg[host].NoPack, p.cfg[unit].NoPack = true, true
	}
	return p
}

// newConfig makes a random configuration of one side.
func newConfig(r *rand.Rand, p *plan, sc scale) messaging.Config {
	c := messaging.Config{
		Mode: p.mode, Queues: p.queues, MTU: p.mtu,
		PoolIdle:    time.Duration(2+r.IntN(40)) * time.Millisecond,
		SignalEvery: 1 + r.IntN(8), Batch: 1 + r.IntN(16),
		KeepAlive: 20 * time.Millisecond, PeerTimeout: patience,
		MaxInline: []int{-1, 100, 220}[r.IntN(3)], PackCopy: []int{-1, 80, 0, messaging.MaxPackCopy}[r.IntN(4)],
	}
	c.SendSlots = c.SignalEvery + c.Batch + 1 + r.IntN(sc.slots)
	elements := []int{1, 2, 3, 5, 16, 64, 300}[r.IntN(7)]
	large := messaging.PoolConfig{ElementSize: []int{4096, messaging.MaxElementSize}[r.IntN(2)],
		Elements: min(elements, sc.slots)}
	c.Pools = []messaging.PoolConfig{large}
	if !p.mode.Sends() {
		if r.IntN(2) == 0 {
			c.Pools = []messaging.PoolConfig{{ElementSize: 2048, Elements: elements}, large}
		}
		c.MaxPools = len(c.Pools) + r.IntN(3)
		protections := messaging.Protections()
		c.Protection = protections[r.IntN(len(protections))]
	}
	c.LatencyPools = messaging.LatencyPools(p.mode, p.mtu)
	c.LatencyPools = c.LatencyPools[max(len(c.LatencyPools)-c.Lends(), 0):]
	return c
}

// longest is the longest frame that a queue can carry in either direction.
func (p *plan) longest(queue int) int {
	most := vnet.MaxFrame
	for _, c := range p.cfg {
		pools := c.Pools
		if c.LatencyQueue && queue == p.queues-1 {
			pools = c.LatencyPools
			most = min(most, vnet.HdrLen+messaging.LatencyLimit(p.mtu))
		}
		size := pools[len(pools)-1].ElementSize
		if p.mode.Sends() {
			size -= protocol.SendDataOverhead
		}
		most = min(most, size)
	}
	if p.mtu == 1500 {
		most = min(most, protocol.MaxImmLength) // longer ones are no super-frames
	}
	return most
}

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

// fault is what ends a session, or prevents it.
type fault string

const (
	faultNone fault = "none" // all frames arrive, and one side closes

	// During the handshake.
	faultStranger fault = "stranger" // a client that is not a host connects
	faultRefuse   fault = "refuse"   // the I/O unit refuses
	faultLeave    fault = "leave"    // one side gives up in one of the phases

	// During traffic.
	faultClose   fault = "close"   // one side closes
	faultLink    fault = "link"    // the bootstrap connection breaks
	faultQP      fault = "qp"      // a queue pair fails
	faultFrame   fault = "frame"   // a frame violates the protocol
	faultNetdev  fault = "netdev"  // a side's netdevice disappears
	faultKill    fault = "kill"    // the process of one side dies, with its fabric device
	faultCut     fault = "cut"     // the fabric's cable is pulled
	faultPost    fault = "post"    // a post fails
	faultRequest fault = "request" // the device reports an error for a work request
	faultLoss    fault = "loss"    // an unreliable channel loses messages, and one side closes
	faultStall   fault = "stall"   // the fabric stalls, and one side closes
)

// everywhere has the faults that are possible on any fabric, and inMemory those that require a
// fabric in memory.
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
	phaseDialled   = iota // host only: authenticated, hello not sent
	phaseGreeted          // the hello, or its answer, has been received
	phaseBuilt            // the channels are created
	phaseExchanged        // the peer's addresses are known
	phaseConnected        // the queue pairs are connected
	phaseReady            // the session is established, the channels are not started
	phases
)

// scale is the size of a cycle.
type scale struct {
	frames  int  // limit of the frames of one stream
	slots   int  // limit of the send slots in addition to the necessary ones
	fabric  bool // the fabric is in memory, so that it can be made to fail
	exactly int  // number of frames of each stream instead of frames; 0 for frames
}

// plan is one cycle. All of it follows from the seed and the number.
type plan struct {
	number uint64
	mode   protocol.Mode
	queues int
	mtu    int
	cfg    [2]messaging.Config
	loose  [2]bool // the side's device does not enforce the bounds of windows
	key    uint64
	frames [2][]int // number of frames that each side sends, by queue
	limit  []int    // bytes of the longest frame, by queue

	fault  fault
	at     side // the side that has or makes the fault
	polite bool // the side that leaves sends a bye
	phase  int
	queue  int           // queue of the stream whose frames determine the time of the fault
	after  uint64        // frames of that stream before the fault
	drop   int           // number of lost messages
	delay  time.Duration // delay of all messages
}

// kind is the transfer mode of frames and, if they are written to memory that the receiver lends,
// the protection of this memory.
type kind struct {
	mode       protocol.Mode
	protection messaging.Protection
}

// kinds returns all kinds.
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

// kind returns the kind of the frames that a side receives.
func (p *plan) kind(s side) kind { return kind{p.mode, p.cfg[s].Protection} }

// String describes the cycle.
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

// newPlan returns the plan of cycle number of the run with this seed.
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
	// In mode send-uc there is no delay: a late message there counts as lost.
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
	// The I/O unit has received the hello when it accepts.
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
		// The remaining frames are enough to reach the time of the fault. A message is one frame.
		p.drop = min(r.IntN(8), sent-1-int(p.after))
		p.cfg[host].NoPack, p.cfg[unit].NoPack = true, true
	}
	return p
}

// newConfig returns a random configuration of one side.
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

// longest returns the length in bytes of the longest frame that a queue can carry in both
// directions.
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
		most = min(most, protocol.MaxImmLength) // longer frames are not super-frames
	}
	return most
}

package iounit

import (
	"sync/atomic"

	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// guard stands between a host and its LAN interface. It passes only the frames that the rules
// permit, in all queues of the interface.
type guard struct {
	refusals *refusals // why frames to the LAN were dropped

	rules  atomic.Pointer[rules]
	known  *stations // nil if the LAN is no bridge
	queues []*policed
}

// guarded says what a guard stands between.
type guarded struct {
	queues   []lan.Queue
	latency  bool                             // the last queue is the latency queue
	taken    *atomic.Pointer[protocol.MACSet] // addresses of all hosts and of the card
	stations *stations                        // those of the LAN, nil if it is no bridge
	flows    sampler
	drops    *capture.Path // where dropped frames are captured
	direct   func() bool   // reports whether the host may have direct connections
	wake     func()        // wakes the readers of all queues
}

// newGuard returns a guard, which needs rules before the first frame.
func newGuard(o guarded) *guard {
	g := &guard{refusals: newRefusals(), known: o.stations}
	markers := newMarkers(len(o.queues), o.direct, o.wake)
	for i, q := range o.queues {
		g.queues = append(g.queues, &policed{
			queue: q, rules: &g.rules, taken: o.taken, urgent: o.latency && i == len(o.queues)-1, refused: g.refusals,
			drops: o.drops, number: i, known: o.stations, markers: markers, flows: o.flows,
		})
	}
	return g
}

// setRules replaces the rules.
func (g *guard) setRules(r *rules) {
	if g.known != nil && r.toUnknown != nil {
		g.known.used.Store(true)
	}
	g.rules.Store(r)
}

// inForce returns the rules.
func (g *guard) inForce() *rules { return g.rules.Load() }

// ports returns the queues of the interface behind the guard.
func (g *guard) ports() []messaging.Port {
	ports := make([]messaging.Port, 0, len(g.queues))
	for _, p := range g.queues {
		ports = append(ports, p)
	}
	return ports
}

// count adds the counters of all queues to s and d.
func (g *guard) count(s *protocol.Statistics, d *Dropped) {
	for _, p := range g.queues {
		p.count(s, d)
	}
}

// oversize returns how many frames to the LAN were longer than the card's MTU and one VLAN tag.
func (g *guard) oversize() (n uint64) {
	for _, p := range g.queues {
		n += p.oversize.Load()
	}
	return n
}

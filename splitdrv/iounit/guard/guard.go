package guard

import (
	"sync/atomic"

	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// Guard stands between a host and its LAN interface. It passes only the frames that the rules
// permit, in all queues of the interface.
type Guard struct {
	Refusals *Refusals // why frames to the LAN were dropped

	rules  atomic.Pointer[Rules]
	known  *Stations // nil if the LAN is no bridge
	queues []*policed
}

// Options says what a guard stands between.
type Options struct {
	Queues   []lan.Queue
	Latency  bool                             // the last queue is the latency queue
	Taken    *atomic.Pointer[protocol.MACSet] // addresses of all hosts and of the card
	Stations *Stations                        // those of the LAN, nil if it is no bridge
	Flows    Sampler                          // samples the frames to other hosts
	Drops    *capture.Path                    // where dropped frames are captured
	Direct   func() bool                      // reports whether the host may have direct connections
	Wake     func()                           // wakes the readers of all queues
}

// New returns a guard, which needs rules before the first frame.
func New(o Options) *Guard {
	g := &Guard{Refusals: newRefusals(), known: o.Stations}
	markers := newMarkers(len(o.Queues), o.Direct, o.Wake)
	for i, q := range o.Queues {
		g.queues = append(g.queues, &policed{
			queue: q, rules: &g.rules, taken: o.Taken, urgent: o.Latency && i == len(o.Queues)-1, refused: g.Refusals,
			drops: o.Drops, number: i, known: o.Stations, markers: markers, flows: o.Flows,
		})
	}
	return g
}

// SetRules replaces the rules.
func (g *Guard) SetRules(r *Rules) {
	if g.known != nil && r.toUnknown != nil {
		g.known.used.Store(true)
	}
	g.rules.Store(r)
}

// Rules returns the rules.
func (g *Guard) Rules() *Rules { return g.rules.Load() }

// Ports returns the queues of the interface behind the guard.
func (g *Guard) Ports() []messaging.Port {
	ports := make([]messaging.Port, 0, len(g.queues))
	for _, p := range g.queues {
		ports = append(ports, p)
	}
	return ports
}

// Count adds the counters of all queues to s and d.
func (g *Guard) Count(s *protocol.Statistics, d *Dropped) {
	for _, p := range g.queues {
		p.count(s, d)
	}
}

// Oversize returns how many frames to the LAN were longer than the card's MTU and one VLAN tag.
func (g *Guard) Oversize() (n uint64) {
	for _, p := range g.queues {
		n += p.oversize.Load()
	}
	return n
}

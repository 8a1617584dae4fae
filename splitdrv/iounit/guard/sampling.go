package guard

import (
	"sync/atomic"

	"github.com/splitnic/splitnic/internal/wake"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// sampleEach is the average number of frames to the LAN of which one is sampled, to find out
// whether its destination is a host that can have a direct connection.
const sampleEach = 16

// sampleLeast is the least number of samples per second of a flow that gets a connection.
const sampleLeast = 50

// Traffic samples the frames that hosts send to each other.
type Traffic struct {
	Watched atomic.Bool   // somebody takes the samples
	Began   chan struct{} // signals the first sample that nobody waits for; capacity one

	owners atomic.Pointer[owners]
}

// NewTraffic returns the traffic of an I/O unit, of which nothing is sampled before Between.
func NewTraffic() *Traffic { return &Traffic{Began: make(chan struct{}, 1)} }

// owners has the addresses of all hosts that can have direct connections. It is never
// changed, only replaced.
type owners struct {
	each  int // average number of frames of which one is sampled
	macs  protocol.MACSet
	slots []int // slot of the host of each address in macs
}

// Between replaces the addresses of hosts: slots has the slot of the host of each of macs. Without
// addresses nothing is sampled. after is the number of packets per second from which on a flow
// matters.
func (t *Traffic) Between(after int, macs []protocol.MAC, slots []int) {
	if len(macs) == 0 {
		t.owners.Store(nil)
		return
	}
	o := &owners{each: min(sampleEach, max(1, after/sampleLeast)), macs: protocol.NewMACSet(macs)}
	o.slots = make([]int, len(o.macs))
	for i, m := range macs {
		o.slots[o.macs.Index(m)] = slots[i]
	}
	t.owners.Store(o)
}

// note records that there are samples.
func (t *Traffic) note() {
	if !t.Watched.Load() && t.Watched.CompareAndSwap(false, true) {
		wake.Up(t.Began)
	}
}

// Samples counts the packets that a host has sent to other hosts. Its size grows with the
// number of slots.
type Samples struct {
	Slot int // of the host
	any  atomic.Bool
	to   atomic.Pointer[[]atomic.Uint32] // by slot of the other host
}

// NewSamples returns the samples of the host with a slot.
func NewSamples(slot int) *Samples {
	s := &Samples{Slot: slot}
	s.to.Store(&[]atomic.Uint32{})
	return s
}

// Fit makes room for a number of slots. Counts of the same moment can be lost.
func (s *Samples) Fit(slots int) {
	if len(*s.to.Load()) < slots {
		to := make([]atomic.Uint32, slots)
		s.to.Store(&to)
	}
}

// News reports whether there are samples since the last call.
func (s *Samples) News() bool { return s.any.Swap(false) }

// Take returns the number of packets to a slot since the last call.
func (s *Samples) Take(slot int) uint64 {
	to := *s.to.Load()
	if slot >= len(to) || to[slot].Load() == 0 {
		return 0
	}
	return uint64(to[slot].Swap(0))
}

// of returns the slot of the host with an address, or -1.
func (o *owners) of(m protocol.MAC) int {
	at := o.macs.Index(m)
	if at < 0 {
		return -1
	}
	return o.slots[at]
}

// Sampler samples the frames that a queue has sent to the LAN.
type Sampler struct {
	traffic *Traffic                 // nil without direct connections
	seen    *atomic.Pointer[Samples] // samples of the host of the queue

	skip   int    // frames until the next sample
	chance uint32 // state of the random numbers that make distances irregular
}

// Sampler returns the sampler for a queue, whose host has the samples.
func (t *Traffic) Sampler(samples *atomic.Pointer[Samples]) Sampler {
	return Sampler{traffic: t, seen: samples}
}

// sample samples frames that were written.
func (s *Sampler) sample(ops []vnet.WriteOp) {
	if s.traffic == nil {
		return
	}
	o, seen := s.traffic.owners.Load(), s.seen.Load()
	if o == nil || seen == nil {
		return
	}
	i := s.skip
	for i < len(ops) {
		head := ops[i].Head
		if slot := o.of(protocol.MAC(head[dstAt:srcAt])); slot >= 0 {
			s.traffic.count(seen, slot, uint32(frameCost(head, len(head)+len(ops[i].Rest)).packets)*uint32(o.each))
		}
		s.chance = s.chance*1664525 + 1013904223
		i += 1 + int(uint64(s.chance)*uint64(2*o.each-1)>>32)
	}
	s.skip = i - len(ops)
}

func (t *Traffic) count(s *Samples, slot int, packets uint32) {
	to := *s.to.Load()
	if slot >= len(to) || slot == s.Slot {
		return
	}
	to[slot].Add(packets)
	s.any.Store(true)
	t.note()
}

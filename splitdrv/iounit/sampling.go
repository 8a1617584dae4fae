package iounit

import (
	"sync/atomic"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// sampleEach is one in how many frames to the LAN is looked at, on average: to whom
// it goes of those who can have a direct path.
const sampleEach = 16

// sampleLeast is how many samples a second there are of a flow that is just enough.
const sampleLeast = 50

// owners says to whom addresses belong, of hosts that can have a direct path. It is
// never changed. There is none where there are not two.
type owners struct {
	flowing *flowing
	each    int // one in how many frames is looked at
	macs    protocol.MACSet
	slots   []int // of the hosts that have them, in that order
}

// flowing says whether there are samples.
type flowing struct {
	dirty atomic.Bool   // there are
	wake  chan struct{} // of capacity one: there are the first ones
}

// note says that there are.
func (f *flowing) note() {
	if !f.dirty.Load() && f.dirty.CompareAndSwap(false, true) {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

// samples count the packets that a host has sent to others. Its size grows with the
// number of slots.
type samples struct {
	slot int
	any  atomic.Bool
	to   atomic.Pointer[[]atomic.Uint32] // by slot
}

func newSamples(slot int) *samples {
	s := &samples{slot: slot}
	s.to.Store(&[]atomic.Uint32{})
	return s
}

// fit makes room for so many slots. What is counted at that moment may be lost.
func (s *samples) fit(slots int) {
	if len(*s.to.Load()) < slots {
		to := make([]atomic.Uint32, slots)
		s.to.Store(&to)
	}
}

// take is what was counted of packets to a slot since the last time.
func (s *samples) take(slot int) uint64 {
	to := *s.to.Load()
	if slot >= len(to) || to[slot].Load() == 0 {
		return 0
	}
	return uint64(to[slot].Swap(0))
}

// of is the slot of the host that has an address, or -1.
func (o *owners) of(m protocol.MAC) int {
	at := o.macs.Index(m)
	if at < 0 {
		return -1
	}
	return o.slots[at]
}

// sampler looks at some of the frames that a queue has sent to the LAN.
type sampler struct {
	owners *atomic.Pointer[owners]  // nil where there is nobody to be found
	seen   *atomic.Pointer[samples] // of the host whose queue it is

	skip   int    // frames until the next one that is looked at
	chance uint32 // so that no pattern of frames goes unseen
}

// sample looks at frames that were written.
func (s *sampler) sample(ops []vnet.WriteOp) {
	if s.owners == nil {
		return
	}
	o, seen := s.owners.Load(), s.seen.Load()
	if o == nil || seen == nil {
		return
	}
	i := s.skip
	for i < len(ops) {
		head := ops[i].Head
		if slot := o.of(protocol.MAC(head[dstAt:srcAt])); slot >= 0 {
			o.count(seen, slot, uint32(frameCost(head, len(head)+len(ops[i].Rest)).packets)*uint32(o.each))
		}
		s.chance = s.chance*1664525 + 1013904223
		i += 1 + int(uint64(s.chance)*uint64(2*o.each-1)>>32)
	}
	s.skip = i - len(ops)
}

// count counts packets to a slot.
func (o *owners) count(s *samples, slot int, packets uint32) {
	to := *s.to.Load()
	if slot >= len(to) || slot == s.slot {
		return
	}
	to[slot].Add(packets)
	s.any.Store(true)
	o.flowing.note()
}

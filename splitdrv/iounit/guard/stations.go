package guard

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/vnet"
)

// Stations has the addresses that a bridge or switch has lately learned from frames which passed a
// port of the I/O unit. Frames to other addresses are copied to all ports, unless the bridge has
// learned the address elsewhere. All hosts of the I/O unit share it. All queues use it at the same
// time, without a lock.
//
// An entry has the time and all bits of the address and its VLAN that do not follow from its place,
// so that no address is taken for another one. The places are different ones in each process:
// otherwise a host that may have many addresses could choose those that displace the address of
// somebody else.
type Stations struct {
	used atomic.Bool          // a host has a limit, so that it matters what is known
	now  func() time.Duration // time since any fixed moment
	add  uint64
	mul  [2]uint64
	sets [1 << setBits][ways]atomic.Uint64
}

const (
	setBits = 12
	ways    = 4
	tagBits = 64 - setBits // of an entry; the others are the time
	// A bridge forgets a station after five minutes of silence. An entry lasts 17 ticks and a part of
	// one, which is less.
	stationTick = 16 * time.Second
	stationLife = 17
	tickMask    = 1<<(64-tagBits) - 1
)

// NewStations returns those of a LAN.
func NewStations() *Stations { return newStations(sinceStart) }

func newStations(now func() time.Duration) *Stations {
	return &Stations{now: now, add: rand.Uint64(), mul: [2]uint64{rand.Uint64() | 1, rand.Uint64() | 1}}
}

// tick returns the time in an entry. It begins with one, because an entry of zero is empty.
func (s *Stations) tick() uint64 {
	if s == nil || !s.used.Load() {
		return 0
	}
	return (uint64(s.now()/stationTick) + 1) & tickMask
}

// place returns the set of an address in a VLAN, and the tag of its entry. Multiplication by an odd
// number loses nothing, and neither does adding the upper half to the lower one. Without the
// latter, and a second multiplication, addresses that follow each other fill some sets only.
func (s *Stations) place(mac [6]byte, vlan uint16) (set *[ways]atomic.Uint64, tag uint64) {
	h := ((number(mac) | uint64(vlan)<<48) ^ s.add) * s.mul[0]
	h = (h ^ h>>32) * s.mul[1]
	return &s.sets[h>>tagBits], h & (1<<tagBits - 1)
}

// learn notes the sender of a [virtio_net_hdr | frame] that passes the bridge.
//
// borrowed: head, for the call.
func (s *Stations) learn(head []byte, tick uint64) {
	if s == nil || !s.used.Load() || len(head) < vnet.MinFrame || head[srcAt]&1 != 0 {
		return
	}
	vlan, _ := vnet.VLAN(head)
	set, tag := s.place([6]byte(head[srcAt:typeAt]), vlan)
	entry := tag | tick<<tagBits
	oldest, age := &set[0], uint64(0)
	for i := range set {
		e := set[i].Load()
		if e == entry {
			return
		}
		if e != 0 && e&(1<<tagBits-1) == tag {
			set[i].Store(entry)
			return
		}
		a := (tick - e>>tagBits) & tickMask
		if e == 0 {
			a = tickMask + 1
		}
		if a > age {
			oldest, age = &set[i], a
		}
	}
	oldest.Store(entry)
}

// knows reports whether a station with the destination address of the frame, in its VLAN, has been
// heard of lately.
//
// borrowed: head, for the call.
func (s *Stations) knows(head []byte, tick uint64) bool {
	vlan, _ := vnet.VLAN(head)
	set, tag := s.place([6]byte(head[dstAt:srcAt]), vlan)
	for i := range set {
		e := set[i].Load()
		if e != 0 && e&(1<<tagBits-1) == tag && (tick-e>>tagBits)&tickMask <= stationLife {
			return true
		}
	}
	return false
}

package iounit

import (
	"math"
	"sync"
	"time"

	"github.com/splitnic/splitnic/vnet"
)

// bounds are the rates of one direction of a host's session; 0 is no bound.
type bounds struct {
	bits    int64 // in a second
	packets int64 // in a second
}

// bucket bounds the rates of one direction of a host's session, of all its
// channels together: bits and packets have a level each. A level rises with its
// rate up to a burst; frames pass while both levels are above zero, and lower them
// by what they are on the wire, even if there is less. What was taken too much so,
// the rest of a frame, is paid back before the next one passes. It may be used by
// several goroutines.
//
// A session begins with an empty one, or goes on with what another has overdrawn
// (accounts): a host gains nothing by coming again. One that has frames dropped,
// not held, is full in the beginning, because of what a host sends first nothing
// should be lost, and goes on as another session has left it.
//
// A rate.Limiter cannot do this: bits and packets pass together or not at all, what
// frames cost is not known before they are read, what did not pass is put back, and
// frames of the latency channel overdraw.
type bucket struct {
	now func() time.Duration // since any moment

	mu      sync.Mutex
	bits    level
	packets level
	at      time.Duration
}

// level is how much may pass of one kind, in billionths, so that nothing is lost
// by rounding: what a rate for a second gives in a nanosecond.
type level struct {
	rate  int64 // a second; 0: no bound
	burst int64 // the most that is saved, in billionths, as is now
	now   int64
}

const (
	// A bucket holds two of the largest super-frames, or what the rate amounts to
	// in burstTime, if that is more: enough for workers that wake some
	// milliseconds late.
	burstBytes   = 2 << 16
	burstPackets = 128
	burstTime    = 4 * time.Millisecond
	// framePackets is how many packets a frame from the LAN is at most: the kernel
	// joins no more received ones (UDP_GRO_CNT_MAX).
	framePackets = 64
	// minHold is how long a worker sleeps at least that was held back: it bounds
	// how often one wakes only to find that a single frame more may pass.
	minHold = 250 * time.Microsecond
	// perUnit is what a level counts a bit, or a packet, as.
	perUnit = int64(time.Second)
)

// started is what the clock of buckets counts from.
var started = time.Now()

// newBucket makes a bucket, which is empty. policy.MaxRate and policy.MaxPPS are
// the highest rates that there can be.
func newBucket(b bounds, now func() time.Duration) *bucket {
	k := &bucket{now: now, at: now()}
	k.set(b)
	return k
}

// set changes the rates from now on.
func (b *bucket) set(to bounds) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill()
	b.bits.set(to.bits, burstBytes*8)
	b.packets.set(to.packets, burstPackets)
}

func (l *level) set(rate, burst int64) {
	switch {
	case rate == l.rate:
		return
	case l.rate == 0:
		l.now = 0
	}
	l.rate = rate
	l.burst = max(burst*perUnit, rate*int64(burstTime))
	// What was saved, or overdrawn, with another rate may be a lot with this one.
	l.now = min(max(l.now, -l.burst), l.burst)
}

// fill adds what has come since it was called last. The caller holds b.mu.
func (b *bucket) fill() {
	now := b.now()
	since := int64(now - b.at)
	b.at = now
	if since > 0 {
		b.bits.fill(since)
		b.packets.fill(since)
	}
}

func (l *level) fill(since int64) {
	switch {
	case l.rate == 0:
	case since > (l.burst-l.now)/l.rate:
		l.now = l.burst
	default:
		l.now += since * l.rate
	}
}

// above is by how much the level is above where it must be for a frame to pass.
// Frames of the latency channel may overdraw by one burst more: they pass although
// the others have emptied the bucket, which have to wait the longer, unless they
// are alone too many for the rate.
func (l *level) above(urgent bool) int64 {
	switch {
	case l.rate == 0:
		return math.MaxInt64
	case urgent:
		return l.now + l.burst
	default:
		return l.now
	}
}

// take takes out what n units are, if there is a bound.
func (l *level) take(n int64) {
	if l.rate != 0 {
		l.now -= n * perUnit
	}
}

// wait is how long it takes until the level is high enough.
func (l *level) wait(urgent bool) time.Duration {
	above := l.above(urgent)
	if above > 0 {
		return 0
	}
	return time.Duration(-above/l.rate + 1)
}

// take lets as many of the first frames pass as may, and returns their number.
func (b *bucket) take(ops []vnet.WriteOp, urgent bool) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill()
	for ; n < len(ops) && b.bits.above(urgent) > 0 && b.packets.above(urgent) > 0; n++ {
		b.pay(frameCost(ops[n].Head, len(ops[n].Head)+len(ops[n].Rest)), 1)
	}
	return n
}

// takeOne lets a frame pass if it may.
func (b *bucket) takeOne(c cost, urgent bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill()
	if b.bits.above(urgent) <= 0 || b.packets.above(urgent) <= 0 {
		return false
	}
	b.pay(c, 1)
	return true
}

// giveBack puts back what was taken for frames that did not pass after all.
func (b *bucket) giveBack(ops []vnet.WriteOp) {
	if len(ops) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range ops {
		b.pay(frameCost(ops[i].Head, len(ops[i].Head)+len(ops[i].Rest)), -1)
	}
	b.bits.now = min(b.bits.now, b.bits.burst)
	b.packets.now = min(b.packets.now, b.packets.burst)
}

// pay takes out what times so many frames cost. The caller holds b.mu.
func (b *bucket) pay(c cost, times int64) {
	b.bits.take(times * c.bits)
	b.packets.take(times * c.packets)
}

// room is how many frames may be read together, whatever their length: 0 if none
// may pass, and otherwise no more than what is there suffices for, and one.
func (b *bucket) room(urgent bool) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill()
	bits, packets := b.bits.above(urgent), b.packets.above(urgent)
	if bits <= 0 || packets <= 0 {
		return 0
	}
	return 1 + int(min(bits/((vnet.MaxFrame-vnet.HdrLen)*8*perUnit), packets/(framePackets*perUnit)))
}

// took takes out what frames cost that were read.
func (b *bucket) took(c cost) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pay(c, 1)
}

// wait is how long it takes until a frame may pass, 0 if one may now.
func (b *bucket) wait(urgent bool) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill()
	return max(b.bits.wait(urgent), b.packets.wait(urgent))
}

// untilFull is how long it takes until as much is saved as can be.
func (b *bucket) untilFull() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill()
	return max(b.bits.untilFull(), b.packets.untilFull())
}

func (l *level) untilFull() time.Duration {
	if l.rate == 0 || l.now >= l.burst {
		return 0
	}
	return time.Duration((l.burst-l.now)/l.rate + 1)
}

// save makes it as full as it can be.
func (b *bucket) save() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bits.now, b.packets.now = b.bits.burst, b.packets.burst
}

// begin forgets what was saved, for another session.
func (b *bucket) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill()
	b.bits.now = min(b.bits.now, 0)
	b.packets.now = min(b.packets.now, 0)
}

// cost is what frames count for: what they are on the wire, cut up and padded,
// without frame check sequences.
type cost struct{ bits, packets int64 }

// frameCost is the cost of a [virtio_net_hdr | frame] of n bytes that begins with
// head.
func frameCost(head []byte, n int) cost {
	if len(head) < vnet.HdrLen {
		return cost{bits: vnet.MinWire * 8, packets: 1} // no frame, which others judge
	}
	packets, bytes := vnet.OnWire(head, n)
	return cost{bits: int64(bytes) * 8, packets: int64(packets)}
}

// plus is the cost of both.
func (c cost) plus(d cost) cost { return cost{bits: c.bits + d.bits, packets: c.packets + d.packets} }

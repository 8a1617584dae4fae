package guard

import (
	"math"
	"sync"
	"time"

	"github.com/splitnic/splitnic/vnet"
)

// bounds has the rates of one direction of a host's session; 0 means no limit.
type bounds struct {
	bits    int64 // per second
	packets int64 // per second
}

// bucket limits the rates of one direction of a host's session, of all its channels
// together. Bits and packets have a level each. A level rises with its rate up to a burst.
// Frames pass while both levels are above zero, and lower them by their size on the wire,
// also below zero; a negative level has to rise again before the next frame passes. Several
// goroutines may use it.
//
// A session begins with an empty bucket, or with the overdraft of another one (accounts), so
// that a host gains nothing by connecting again. A bucket that drops frames instead of
// holding them is full at the beginning, so that the first frames of a host are not lost, or
// has the level that another session has left.
//
// A rate.Limiter cannot do this: bits and packets pass together or not at all, the cost of
// frames is not known before they are read, the cost of frames that did not pass is put
// back, and frames of the latency channel overdraw.
type bucket struct {
	now func() time.Duration // time since any fixed moment

	mu      sync.Mutex
	bits    level
	packets level
	at      time.Duration
}

// level is the amount that may pass, in billionths of a unit: a rate per second is the
// increase per nanosecond, without rounding.
type level struct {
	rate  int64 // units per second; 0: no limit
	burst int64 // largest value of now
	now   int64
}

const (
	// A burst is two of the largest super-frames, or the amount of burstTime if that is more,
	// which is enough for workers that wake some milliseconds late.
	BurstBytes   = 2 << 16
	BurstPackets = 128
	burstTime    = 4 * time.Millisecond
	// framePackets is the largest number of packets of a frame from the LAN: the kernel joins
	// no more received packets (UDP_GRO_CNT_MAX).
	framePackets = 64
	// minHold is the least time that a held worker sleeps. It limits how often a worker wakes
	// for a single frame.
	minHold = 250 * time.Microsecond
	// perUnit is the amount of a bit, or of a packet, in a level.
	perUnit = int64(time.Second)
)

// sinceStart is the clock of buckets and stations.
func sinceStart() time.Duration { return time.Since(started) }

var started = time.Now()

// newBucket returns an empty bucket. The rates are at most policy.MaxRate and policy.MaxPPS.
func newBucket(b bounds, now func() time.Duration) *bucket {
	k := &bucket{now: now, at: now()}
	k.set(b)
	return k
}

func (b *bucket) set(to bounds) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill()
	b.bits.set(to.bits, BurstBytes*8)
	b.packets.set(to.packets, BurstPackets)
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
	// A level from another rate may be too much for this one.
	l.now = min(max(l.now, -l.burst), l.burst)
}

// fill raises the levels for the time since the last call. The caller holds b.mu.
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

// above returns by how much the level exceeds the one at which no frame passes. Frames of
// the latency channel (urgent) may overdraw by one burst: they pass although other frames
// have emptied the bucket, which then wait longer, unless they alone exceed the rate.
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

// take lowers the level by n units, if there is a limit.
func (l *level) take(n int64) {
	if l.rate != 0 {
		l.now -= n * perUnit
	}
}

// wait returns how long it takes until the level is high enough for a frame.
func (l *level) wait(urgent bool) time.Duration {
	above := l.above(urgent)
	if above > 0 {
		return 0
	}
	return time.Duration(-above/l.rate + 1)
}

// take returns how many of the first frames may pass, and lowers the levels by their cost.
func (b *bucket) take(ops []vnet.WriteOp, urgent bool) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill()
	for ; n < len(ops) && b.bits.above(urgent) > 0 && b.packets.above(urgent) > 0; n++ {
		b.pay(frameCost(ops[n].Head, len(ops[n].Head)+len(ops[n].Rest)), 1)
	}
	return n
}

// takeOne reports whether a frame may pass, and then lowers the levels by its cost.
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

// giveBack puts back the cost of frames that did not pass after all.
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

// pay lowers the levels by times times the cost c. The caller holds b.mu.
func (b *bucket) pay(c cost, times int64) {
	b.bits.take(times * c.bits)
	b.packets.take(times * c.packets)
}

// room returns how many frames of any length may be read in one call: 0 if none may pass,
// and otherwise one more than the levels suffice for.
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

// took lowers the levels by the cost of frames that were read.
func (b *bucket) took(c cost) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pay(c, 1)
}

// wait returns how long it takes until a frame may pass; 0: now.
func (b *bucket) wait(urgent bool) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill()
	return max(b.bits.wait(urgent), b.packets.wait(urgent))
}

// untilFull returns how long it takes until the bucket is full.
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

// save fills the bucket.
func (b *bucket) save() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bits.now, b.packets.now = b.bits.burst, b.packets.burst
}

// begin empties the bucket, for another session, but keeps an overdraft.
func (b *bucket) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill()
	b.bits.now = min(b.bits.now, 0)
	b.packets.now = min(b.packets.now, 0)
}

// cost is the size of frames on the wire, segmented and padded, without frame check
// sequences.
type cost struct{ bits, packets int64 }

// frameCost returns the cost of a [virtio_net_hdr | frame] of n bytes that begins with head.
func frameCost(head []byte, n int) cost {
	if len(head) < vnet.HdrLen {
		return cost{bits: vnet.MinWire * 8, packets: 1} // malformed, which is checked elsewhere
	}
	packets, bytes := vnet.OnWire(head, n)
	return cost{bits: int64(bytes) * 8, packets: int64(packets)}
}

func (c cost) plus(d cost) cost { return cost{bits: c.bits + d.bits, packets: c.packets + d.packets} }

package iounit

import (
	"sync"
	"time"

	"github.com/splitnic/splitnic/vnet"
)

// bucket bounds the rate of one direction of a host's session, of all its
// channels together. It fills with the rate up to the burst; frames pass while
// there is anything in it, and take out as many bits as they have, even if
// there are less. What was taken too much so, the rest of a frame, is paid back
// before the next one passes. It may be used by several goroutines.
//
// A session begins with an empty one, or goes on with what another has overdrawn
// (accounts): a host gains nothing by coming again.
type bucket struct {
	now func() time.Duration // since any moment

	mu    sync.Mutex
	rate  int64 // bits per second; bits per nanosecond are billionths of that
	most  int64 // what level is when the bucket is full, in bits / 1e9
	level int64 // the same unit, so that nothing is lost by rounding
	at    time.Duration
}

const (
	// A bucket holds two of the largest super-frames, or what the rate amounts to
	// in burstTime, if that is more: enough for workers that wake some
	// milliseconds late.
	burstBytes = 2 << 16
	burstTime  = 4 * time.Millisecond
	// minHold is how long a worker sleeps at least that was held back: it bounds
	// how often one wakes only to find that a single frame more may pass.
	minHold = 250 * time.Microsecond
	// perBit is what level counts a bit as.
	perBit = int64(time.Second)
)

// started is what the clock of buckets counts from.
var started = time.Now()

// newBucket makes a bucket, which is empty. policy.MaxRate is the highest rate
// that there can be.
func newBucket(rate int64, now func() time.Duration) *bucket {
	b := &bucket{now: now, at: now()}
	b.set(rate)
	return b
}

// set changes the rate from now on.
func (b *bucket) set(rate int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fill(); b.rate == rate {
		return
	}
	b.rate = rate
	b.most = max(burstBytes*8*perBit, rate*int64(burstTime))
	// What was saved, or overdrawn, with another rate may be a lot with this one.
	b.level = min(max(b.level, -b.most), b.most)
}

// fill adds what has come since it was called last. The caller holds b.mu.
func (b *bucket) fill() {
	now := b.now()
	since := int64(now - b.at)
	b.at = now
	switch {
	case since <= 0 || b.rate == 0:
	case since > (b.most-b.level)/b.rate:
		b.level = b.most
	default:
		b.level += since * b.rate
	}
}

// floor is where the level must be above for a frame to pass. Frames of the
// latency channel may overdraw by one burst more: they pass although the others
// have emptied the bucket, which have to wait the longer, unless they are alone
// too many for the rate.
func (b *bucket) floor(urgent bool) int64 {
	if urgent {
		return -b.most
	}
	return 0
}

// take lets as many of the first frames pass as may, and returns their number.
func (b *bucket) take(ops []vnet.WriteOp, urgent bool) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill()
	for floor := b.floor(urgent); n < len(ops) && b.level > floor; n++ {
		b.level -= bits(len(ops[n].Head) + len(ops[n].Rest))
	}
	return n
}

// giveBack puts back what was taken for frames that did not pass after all.
func (b *bucket) giveBack(ops []vnet.WriteOp) {
	if len(ops) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range ops {
		b.level += bits(len(ops[i].Head) + len(ops[i].Rest))
	}
	b.level = min(b.level, b.most)
}

// room is how many frames may be read together, whatever their length: 0 if none
// may pass, and otherwise no more than what is there suffices for, and one.
func (b *bucket) room(urgent bool) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill()
	above := b.level - b.floor(urgent)
	if above <= 0 {
		return 0
	}
	return 1 + int(above/bits(vnet.MaxFrame))
}

// took takes out what frames had that were read.
func (b *bucket) took(bits int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.level -= bits
}

// wait is how long it takes until a frame may pass, 0 if one may now.
func (b *bucket) wait(urgent bool) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill()
	lacks := b.floor(urgent) - b.level
	if lacks < 0 {
		return 0
	}
	return time.Duration(lacks/b.rate + 1)
}

// begin forgets what was saved, for another session.
func (b *bucket) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill()
	b.level = min(b.level, 0)
}

// bits is what a [virtio_net_hdr | frame] of n bytes counts for: its Ethernet
// frame, without a frame check sequence, and whole if it is yet to be cut up.
func bits(n int) int64 { return int64(n-vnet.HdrLen) * 8 * perBit }

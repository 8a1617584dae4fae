package guard

import (
	"sync"
	"testing"
	"time"

	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/vnet"
)

// hand is a clock that the test advances.
type hand struct{ at time.Duration }

func (h *hand) now() time.Duration { return h.at }

// sized returns a frame that counts as n bytes.
func sized(n int) []vnet.WriteOp { return []vnet.WriteOp{{Head: make([]byte, vnet.HdrLen+n)}} }

// allowed returns the number of bytes that a rate in bits per second allows in this time.
func allowed(rate int64, t time.Duration) float64 { return float64(rate) * t.Seconds() / 8 }

// TestBucketOverdraft takes a frame for which the level of the bucket does not suffice. The next
// frame must wait until the debt is paid off.
func TestBucketOverdraft(t *testing.T) {
	h := &hand{}
	b := newBucket(bounds{bits: 8e6}, h.now) // one byte per microsecond
	h.at = time.Microsecond
	if b.take(append(sized(60_001), sized(60)...), false) != 1 {
		t.Fatal("no frame, or both of them, passed")
	}
	if w := b.wait(false); w < 60*time.Millisecond || w > 60*time.Millisecond+time.Microsecond {
		t.Errorf("the next frame waits for %v", w)
	}
	h.at += 60 * time.Millisecond
	if b.take(sized(60), false) != 0 {
		t.Error("a frame passed before the last one was paid for")
	}
	if w := b.wait(false); w != 1 && w != 2 { // nanoseconds, one of them for rounding
		t.Errorf("the next frame waits for %v", w)
	}
	h.at += time.Microsecond
	if b.take(sized(60), false) != 1 {
		t.Error("no frame passes when the last one is paid for")
	}
	b.giveBack(sized(60))
	if b.wait(false) != 0 {
		t.Error("what was given back is gone")
	}
	b.giveBack(sized(1 << 20))
	if b.bits.now > b.bits.burst {
		t.Error("a bucket is fuller than full")
	}
}

// TestBucketBegins has a session begin with a bucket that another one has left overdrawn, or with
// something in it. It must have to wait for as long as the other one, or begin with nothing.
func TestBucketBegins(t *testing.T) {
	for _, to := range []bounds{{bits: 8e6}, {packets: 1000}} {
		h := &hand{}
		b := newBucket(to, h.now)
		h.at = time.Millisecond
		for b.take(sized(60), true) == 1 {
		}
		before := b.wait(false)
		if b.begin(); before == 0 || b.wait(false) != before {
			t.Errorf("%+v: the next session waits for %v, the last one had to for %v", to, b.wait(false), before)
		}
		h.at += time.Hour
		if b.begin(); b.wait(false) == 0 {
			t.Errorf("%+v: a session begins with a burst", to)
		}
	}
}

// TestBucketUrgent checks that frames of the latency channel pass while others wait, up to a limit.
func TestBucketUrgent(t *testing.T) {
	h := &hand{}
	b := newBucket(bounds{bits: 8e6}, h.now)
	h.at = time.Microsecond
	b.take(sized(60_000), false)
	before := b.wait(false)
	if b.take(sized(1000), true) != 1 || b.wait(true) != 0 || b.room(true) == 0 || b.room(false) != 0 {
		t.Error("an urgent frame has to wait")
	}
	if got := b.wait(false) - before; got != time.Millisecond {
		t.Errorf("1000 bytes of the latency channel have the others wait %v longer", got)
	}
	n := 0
	for b.take(sized(1000), true) == 1 {
		n++
	}
	if n*1000 > BurstBytes || n*1000 < BurstBytes/2-2000 || b.wait(true) == 0 {
		t.Errorf("%d more urgent frames passed at once", n)
	}
	h.at += b.wait(true)
	if b.take(sized(1000), true) != 1 {
		t.Error("urgent frames that are too many do not pass at all")
	}
}

// TestBucketSet changes the rate of a bucket.
func TestBucketSet(t *testing.T) {
	h := &hand{}
	b := newBucket(bounds{bits: 1e6}, h.now)
	h.at = time.Microsecond
	b.take(sized(50_000), false)
	slow := b.wait(false)
	b.set(bounds{bits: 100e6})
	if got := b.wait(false); got < slow/101 || got > slow/99 {
		t.Errorf("a hundred times the rate has a frame wait for %v instead of %v", got, slow)
	}
	// A level saved with a high rate is reduced to the burst of the low one.
	b.set(bounds{bits: 100e9})
	h.at += time.Hour
	b.set(bounds{bits: 1e6})
	n := 0
	for b.take(sized(1000), false) == 1 {
		n++
	}
	if n*1000 > BurstBytes+1000 {
		t.Errorf("%d frames of a thousand bytes at once", n)
	}
	// A debt from a high rate does not take too long to be paid off with a low one.
	b.set(bounds{bits: 100e9})
	h.at += time.Hour
	for b.take(sized(1<<16-30), true) == 1 {
	}
	b.set(bounds{bits: policy.MinRate})
	if got := b.wait(false); got > 11*time.Second {
		t.Errorf("a frame waits for %v", got)
	}
}

// TestBucketShared has several workers take from one bucket at the same time. Together they must
// not take more than it has.
func TestBucketShared(t *testing.T) {
	h := &hand{}
	b := newBucket(bounds{bits: 1e6}, h.now)
	h.at = time.Hour // full, and from now on nothing is added
	var wg sync.WaitGroup
	var n [8]int
	for i := range n {
		wg.Go(func() {
			for b.take(sized(100), false) == 1 {
				n[i]++
				if b.take(sized(100), false) == 1 {
					b.giveBack(sized(100))
				}
			}
		})
	}
	wg.Wait()
	sum := 0
	for i := range n {
		sum += 100 * n[i]
	}
	if sum > BurstBytes+100 {
		t.Errorf("%d bytes passed, %d were in the bucket", sum, BurstBytes)
	}
}

// TestBucketPackets limits packets: those into which super-frames are segmented, and short frames.
func TestBucketPackets(t *testing.T) {
	for _, tc := range []struct {
		name           string
		frame          []byte
		packets, bytes int
	}{
		{"short frames", make([]byte, vnet.HdrLen+14), 1, 60},
		{"frames", make([]byte, vnet.HdrLen+1514), 1, 1514},
		{"super-frames", superFrame(14480, 1448), 10, 10 * 1502},
		{"small segments", superFrame(48000, 48), 1000, 1000 * 102},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, to := range []bounds{{packets: 10_000}, {packets: 10_000, bits: policy.MaxRate},
				{packets: policy.MaxPPS, bits: 8e6}} {
				h := &hand{at: time.Hour}
				b, start := newBucket(to, h.now), h.at
				ops := []vnet.WriteOp{{Head: tc.frame[:min(len(tc.frame), headSize)],
					Rest: tc.frame[min(len(tc.frame), headSize):]}}
				packets, bytes := 0, 0
				for range 2000 {
					for b.take(ops, false) == 0 {
						h.at += b.wait(false)
					}
					packets += tc.packets
					bytes += tc.bytes
				}
				took := (h.at - start).Seconds()
				if most := float64(to.packets)*took + float64(tc.packets); float64(packets) > most {
					t.Errorf("%+v: %d packets in %vs, at most %.0f", to, packets, took, most)
				}
				if most := allowed(to.bits, h.at-start) + float64(tc.bytes); to.bits > 0 && float64(bytes) > most {
					t.Errorf("%+v: %d bytes in %vs, at most %.0f", to, bytes, took, most)
				}
				if float64(packets) < 0.9*float64(to.packets)*took &&
					(to.bits == 0 || float64(bytes) < 0.9*allowed(to.bits, h.at-start)) {
					t.Errorf("%+v: %d packets of %d bytes together in %vs", to, packets, bytes, took)
				}
				b.giveBack(ops)
				if b.take(ops, false) == 1 && b.bits.rate > 0 && b.bits.now > 0 && b.packets.now > 0 {
					t.Errorf("%+v: more came back than was taken", to)
				}
			}
		})
	}
}

// TestBucketOneBound removes one of two limits, and sets it again.
func TestBucketOneBound(t *testing.T) {
	h := &hand{}
	b := newBucket(bounds{bits: 8e6, packets: 1000}, h.now)
	h.at = time.Microsecond
	b.take(sized(60_000), false)
	if w := b.wait(false); w < 59*time.Millisecond {
		t.Errorf("a frame waits for %v", w)
	}
	b.set(bounds{packets: 1000})
	if w := b.wait(false); w > time.Millisecond {
		t.Errorf("without the bound that was overdrawn a frame waits for %v", w)
	}
	h.at += time.Hour
	b.set(bounds{bits: 8e6})
	if b.room(false) != 0 || b.wait(false) == 0 {
		t.Error("a bound that is new has something saved")
	}
	h.at += time.Hour
	if n := b.room(false); n != 1+BurstBytes/(vnet.MaxFrame-vnet.HdrLen) {
		t.Errorf("room for %d frames", n)
	}
	b.set(bounds{packets: 1000})
	h.at += time.Hour
	if n := b.room(false); n != 1+BurstPackets/framePackets {
		t.Errorf("room for %d frames", n)
	}
}

//go:build !race

// Tests in which one goroutine tries something very often: under the race detector they would take
// ten times as long, and show the same.

package guard

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/vnet"
)

// TestBucketRate takes as many frames from buckets as possible. That must never be more than the
// rate, except for the frame that empties the bucket, and never much less.
func TestBucketRate(t *testing.T) {
	for _, rate := range []int64{policy.MinRate, 1e6, 33_333_333, 1e9, 100e9, policy.MaxRate} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, uint64(rate)))
			h := &hand{at: time.Hour}
			start := h.at
			b := newBucket(bounds{bits: rate}, h.now)
			bytes, frames := 0, 0
			for range 20_000 {
				n := 60 + random.IntN(1455)
				if random.IntN(10) == 0 {
					n = 1<<16 - 30
				}
				for b.take(sized(n), false) == 0 {
					// Like a worker that wakes late, sometimes very late.
					h.at += max(b.wait(false), minHold)
					if random.IntN(100) == 0 {
						h.at += time.Duration(random.IntN(int(burstTime / 2)))
					}
				}
				bytes += n
				frames++
				if max := allowed(rate, h.at-start) + 1<<16; float64(bytes) > max {
					t.Fatalf("%d bytes after %v, at most %.0f", bytes, h.at-start, max)
				}
			}
			if least := allowed(rate, h.at-start) - 2*float64(b.bits.burst/perUnit)/8; float64(bytes) < least {
				t.Errorf("%d bytes after %v, should be %.0f", bytes, h.at-start, least)
			}
		})
	}
}

// TestBucketBurst lets a bucket fill for a long time. The bucket must allow one burst.
func TestBucketBurst(t *testing.T) {
	for rate, burst := range map[int64]int{policy.MinRate: BurstBytes, 1e9: 500_000, policy.MaxRate: 500_000_000} {
		h := &hand{}
		b := newBucket(bounds{bits: rate}, h.now)
		if n := b.room(false); n != 0 {
			t.Errorf("%d: a new bucket has room for %d frames", rate, n)
		}
		h.at = 1000 * time.Hour
		if n, want := b.room(false), 1+burst/(vnet.MaxFrame-vnet.HdrLen); n != want {
			t.Errorf("%d: room for %d super-frames, want %d", rate, n, want)
		}
		n := 0
		for b.take(sized(1000), false) == 1 {
			n++
		}
		if want := (burst + 999) / 1000; n != want {
			t.Errorf("%d: %d frames of 1000 bytes at once, want %d", rate, n, want)
		}
	}
}

// TestStationsSpread has stations whose addresses follow each other, in many processes.
func TestStationsSpread(t *testing.T) {
	const many = 4000
	for try := range 200 {
		s := newStations((&hand{at: time.Hour}).now)
		s.used.Store(true)
		for i := range many {
			s.learn(from(numbered(i)), s.tick())
		}
		known := 0
		for i := range many {
			if s.knows(frame(numbered(i), own, 60), s.tick()) {
				known++
			}
		}
		if known < many*99/100 {
			t.Fatalf("process %d: %d of %d stations are known", try, known, many)
		}
	}
}

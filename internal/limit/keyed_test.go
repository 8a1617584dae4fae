package limit

import (
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/time/rate"
)

func key(n int) Key { return PublicKey([32]byte{byte(n), byte(n >> 8), byte(n >> 16), 1}) }

func TestKeyedSpend(t *testing.T) {
	k := NewKeyed(10)
	now := time.Unix(1000, 0)
	spend := func(of, n, burst int, want time.Duration) {
		t.Helper()
		if got := k.Spend(now, key(of), n, burst); got.Round(time.Millisecond) != want {
			t.Errorf("%d waits %v to spend %d of %d, want %v", of, got, n, burst, want)
		}
	}
	spend(1, 20, 20, 0)
	spend(1, 1, 20, 100*time.Millisecond)
	spend(1, 2, 20, 300*time.Millisecond) // after the previous one
	spend(2, 20, 20, 0)                   // another key
	now = now.Add(time.Second)
	spend(1, 7, 20, 0)
	spend(1, 1, 20, 100*time.Millisecond)
	now = now.Add(time.Hour)
	spend(1, 20, 20, 0) // no more than the burst is saved
	spend(1, 1, 20, 100*time.Millisecond)
	spend(3, 50, 20, 0) // more than the burst
	spend(3, 1, 20, 100*time.Millisecond)
}

// TestKeyedTake expects Take to take tokens only if there are enough.
func TestKeyedTake(t *testing.T) {
	k := NewKeyed(10)
	now := time.Unix(1000, 0)
	take := func(n, burst int, want time.Duration) {
		t.Helper()
		if got := k.Take(now, key(1), n, burst); got.Round(time.Millisecond) != want {
			t.Errorf("to take %d of %d takes %v, want %v", n, burst, got, want)
		}
	}
	take(20, 20, 0)
	for range 100 { // failed takes cost nothing
		take(1, 20, 100*time.Millisecond)
		take(5, 20, 500*time.Millisecond)
	}
	now = now.Add(100 * time.Millisecond)
	take(1, 20, 0)
	take(1, 20, 100*time.Millisecond)
	now = now.Add(time.Hour)
	take(5, 5, 0) // a smaller burst
	take(1, 5, 100*time.Millisecond)
	now = now.Add(time.Hour)
	take(20, 20, 0) // a larger burst again
	take(1, 30, 100*time.Millisecond)
}

// TestKeyedConserves takes tokens with several keys at random times. It expects that no key gets
// more than its burst and the tokens of the time since, and that none gets much less.
func TestKeyedConserves(t *testing.T) {
	const burst, perSecond = 8, 4
	k := NewKeyed(perSecond)
	start := time.Unix(1000, 0)
	now := start
	r := rand.New(rand.NewPCG(1, 2))
	var took [5]int
	for range 2000 {
		now = now.Add(time.Duration(r.Int64N(int64(50 * time.Millisecond))))
		i := r.IntN(len(took))
		if k.Take(now, key(i), 1, burst) == 0 {
			took[i]++
		}
		if most := burst + int(now.Sub(start).Seconds()*perSecond); took[i] > most {
			t.Fatalf("%d are taken in %v, at most %d", took[i], now.Sub(start), most)
		}
	}
	for i, n := range took {
		if least := int(now.Sub(start).Seconds()*perSecond) - burst; n < least {
			t.Errorf("key %d took %d in %v, of %d", i, n, now.Sub(start), least)
		}
	}
}

// few is the number of keys that the Keyed of newFew remembers.
const few = 32

func newFew(perSecond float64) *Keyed {
	k := NewKeyed(perSecond)
	k.most = few
	return k
}

// TestKeyedForgets uses more keys than are remembered. It expects the keys with the largest
// deficits to be remembered.
func TestKeyedForgets(t *testing.T) {
	k := newFew(10)
	now := time.Unix(1000, 0)
	k.Spend(now, key(1<<20), 20, 20)
	k.Spend(now, key(1<<20), 20, 20)
	for i := range 10 * few {
		if d := k.Spend(now, key(i), 1, 20); d != 0 {
			t.Fatalf("key %d waits %v", i, d)
		}
		if len(k.buckets) > few {
			t.Fatalf("%d keys are remembered, at most %d", len(k.buckets), few)
		}
	}
	if d := k.Spend(now, key(1<<20), 1, 20); d.Round(time.Millisecond) != 2100*time.Millisecond {
		t.Errorf("the key that has spent most waits %v, want 2.1s", d)
	}
	now = now.Add(time.Hour)
	k.Spend(now, key(1<<20+1), 1, 20)
	if len(k.buckets) != 1 {
		t.Errorf("%d keys are remembered when all but one lack nothing", len(k.buckets))
	}
}

// TestKeyedManyKeys uses more keys than are remembered in turn, so that keys are forgotten. It
// expects all keys together to get no more than as many keys as are remembered may have.
func TestKeyedManyKeys(t *testing.T) {
	const burst, perSecond = 3, 4
	k := newFew(perSecond)
	now := time.Unix(1000, 0)
	took := 0
	for range 4 * burst {
		for i := range 2 * few {
			if k.Take(now, key(i), 1, burst) == 0 {
				took++
			}
		}
	}
	if most := few * burst; took > most || took < most/2 {
		t.Errorf("%d were taken at once with twice as many keys as are remembered, want %d at most", took, most)
	}
	now = now.Add(time.Second / perSecond)
	took = 0
	for i := range 2 * few {
		if k.Take(now, key(i), 1, burst) == 0 {
			took++
		}
	}
	if took > few || took < few/2 {
		t.Errorf("%d were taken when each had regained one, want %d at most", took, few)
	}
}

func TestSpend(t *testing.T) {
	now := time.Unix(1000, 0)
	l := rate.NewLimiter(10, 20)
	for _, tt := range []struct {
		n    int
		want time.Duration
	}{{0, 0}, {20, 0}, {1, 100 * time.Millisecond}, {0, 0}, {100, 10100 * time.Millisecond}} {
		if got := spend(l, now, tt.n); got.Round(time.Millisecond) != tt.want {
			t.Errorf("%d take %v, want %v", tt.n, got, tt.want)
		}
	}
}

package limit

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxKeys bounds the keys that are remembered.
const maxKeys = 1024

// Keyed bounds what each of many keys spends: a burst at once, and a rate in the
// long run. What a key stands for may come and go: what it has spent is
// remembered.
//
// No more than maxKeys are remembered. A key that has regained all that it spent is
// forgotten first. While all lack something, the one that lacks least makes room,
// and the newcomer is taken to have spent what that lacked: whoever has more keys
// than are remembered regains nothing by using them in turn, and all keys together
// spend no more than maxKeys can.
//
// It may be used by several goroutines.
type Keyed struct {
	perSecond rate.Limit
	most      int // keys that are remembered

	mu      sync.Mutex
	buckets map[Key]*rate.Limiter
}

// NewKeyed makes limits of perSecond for each key.
func NewKeyed(perSecond float64) *Keyed {
	return &Keyed{perSecond: rate.Limit(perSecond), most: maxKeys, buckets: make(map[Key]*rate.Limiter)}
}

// Take takes n from what a key has, if it has that, and returns 0. Otherwise it
// takes nothing and returns how long it takes until the key has that. burst is the
// most that the key can save up, and at least n.
func (k *Keyed) Take(now time.Time, key Key, n, burst int) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.bucket(now, key, max(burst, n))
	if l.AllowN(now, n) {
		return 0
	}
	return until(l, now, float64(n))
}

// Spend takes n from what a key has, or will have, and returns how long it takes
// until it has that: 0 if it has it now. burst is the most that the key can save
// up, and at least n.
func (k *Keyed) Spend(now time.Time, key Key, n, burst int) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return Spend(k.bucket(now, key, max(burst, n)), now, n)
}

// bucket is a key's. The caller holds k.mu.
func (k *Keyed) bucket(now time.Time, key Key, burst int) *rate.Limiter {
	l := k.buckets[key]
	switch {
	case l == nil:
		l = rate.NewLimiter(k.perSecond, burst)
		Spend(l, now, k.makeRoom(now))
		k.buckets[key] = l
	case burst > l.Burst() && l.TokensAt(now) >= float64(l.Burst()): // it lacks nothing of that either
		l = rate.NewLimiter(k.perSecond, burst)
		k.buckets[key] = l
	case l.Burst() != burst:
		l.SetBurstAt(now, burst)
	}
	return l
}

// makeRoom forgets keys until there is room for another, and returns how much that
// has to be taken to have spent. The caller holds k.mu.
func (k *Keyed) makeRoom(now time.Time) (spent int) {
	if len(k.buckets) < k.most {
		return 0
	}
	var first Key
	least := math.Inf(1)
	for key, l := range k.buckets {
		lacks := float64(l.Burst()) - l.TokensAt(now)
		if lacks <= 0 {
			delete(k.buckets, key)
		} else if lacks < least {
			first, least = key, lacks
		}
	}
	if len(k.buckets) < k.most {
		return 0
	}
	delete(k.buckets, first)
	return int(math.Ceil(least))
}

// Spend takes n from what l has, or will have, and returns how long it takes until
// it has that: 0 if it has it now. n may be more than the burst, at the price that
// it takes.
func Spend(l *rate.Limiter, now time.Time, n int) (wait time.Duration) {
	for burst := max(l.Burst(), 1); n > 0; n -= burst {
		wait = l.ReserveN(now, min(n, burst)).DelayFrom(now)
	}
	return wait
}

// until is how long it takes until l has as much as n, which it does not have.
func until(l *rate.Limiter, now time.Time, n float64) time.Duration {
	missing := n - l.TokensAt(now)
	return time.Duration(missing/float64(l.Limit())*float64(time.Second)) + time.Nanosecond
}

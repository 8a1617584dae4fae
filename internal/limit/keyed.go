package limit

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxKeys is the largest number of keys that a Keyed remembers.
const maxKeys = 1024

// Keyed has a token bucket for each of many keys. It limits the burst of a key, and its rate
// in the long run. The bucket of a key stays when the peer disconnects.
//
// Keyed remembers at most maxKeys keys. To make room, it first forgets keys whose buckets are
// full. If no bucket is full, it forgets the key whose bucket lacks the fewest tokens, and the
// bucket of the new key lacks as many from the start. A peer with more than maxKeys keys
// therefore gains nothing by using them in turn, and all keys together spend no more than
// maxKeys keys can.
//
// A Keyed may be used by several goroutines.
type Keyed struct {
	perSecond rate.Limit
	most      int // largest number of remembered keys

	mu      sync.Mutex
	buckets map[Key]*rate.Limiter
}

// NewKeyed returns a Keyed whose keys gain perSecond tokens per second each.
func NewKeyed(perSecond float64) *Keyed {
	return &Keyed{perSecond: rate.Limit(perSecond), most: maxKeys, buckets: make(map[Key]*rate.Limiter)}
}

// Take takes n tokens from the bucket of key and returns 0, if there are as many. Otherwise it
// takes none and returns the time until the bucket has n. burst is the size of the bucket; n
// is used instead if that is larger.
func (k *Keyed) Take(now time.Time, key Key, n, burst int) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.bucket(now, key, max(burst, n))
	if l.AllowN(now, n) {
		return 0
	}
	return until(l, now, float64(n))
}

// Spend takes n tokens that the bucket of key has, or will have, and returns the time until
// it has them: 0 if it has them now. burst is the size of the bucket; n is used instead if
// that is larger.
func (k *Keyed) Spend(now time.Time, key Key, n, burst int) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return spend(k.bucket(now, key, max(burst, n)), now, n)
}

// bucket returns the bucket of key, and makes it if necessary. The caller holds k.mu.
func (k *Keyed) bucket(now time.Time, key Key, burst int) *rate.Limiter {
	l := k.buckets[key]
	switch {
	case l == nil:
		l = rate.NewLimiter(k.perSecond, burst)
		spend(l, now, k.makeRoom(now))
		k.buckets[key] = l
	case burst > l.Burst() && l.TokensAt(now) >= float64(l.Burst()): // a full bucket stays full
		l = rate.NewLimiter(k.perSecond, burst)
		k.buckets[key] = l
	case l.Burst() != burst:
		l.SetBurstAt(now, burst)
	}
	return l
}

// makeRoom forgets keys until there is room for a new one, and returns how many tokens the
// bucket of the new key has to lack. The caller holds k.mu.
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

// spend takes n tokens that l has, or will have, and returns the time until l has them: 0 if
// l has them now. n may exceed the burst, for a longer wait.
func spend(l *rate.Limiter, now time.Time, n int) (wait time.Duration) {
	for burst := max(l.Burst(), 1); n > 0; n -= burst {
		wait = l.ReserveN(now, min(n, burst)).DelayFrom(now)
	}
	return wait
}

// until returns the time until l has n tokens. It has no more than n now.
func until(l *rate.Limiter, now time.Time, n float64) time.Duration {
	missing := n - l.TokensAt(now)
	return time.Duration(missing/float64(l.Limit())*float64(time.Second)) + time.Nanosecond
}

package pace

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxKeys bounds the keys that are remembered. One that has spent nothing for a
// while needs not be.
const maxKeys = 1024

// Keyed bounds what each of many keys spends: a burst at once, and a rate in the
// long run. What a key stands for may come and go: what it has spent is
// remembered. It may be used by several goroutines.
type Keyed[K comparable] struct {
	rate rate.Limit

	mu sync.Mutex
	by map[K]*rate.Limiter
}

// NewKeyed makes limits of perSecond for each key.
func NewKeyed[K comparable](perSecond float64) *Keyed[K] {
	return &Keyed[K]{rate: rate.Limit(perSecond), by: make(map[K]*rate.Limiter)}
}

// Spend takes n from what a key has, or will have, and returns how long it takes
// until it has that: 0 if it has it now. burst is the most that the key can save
// up, and at least n.
func (k *Keyed[K]) Spend(now time.Time, key K, n, burst int) time.Duration {
	burst = max(burst, n)
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.by[key]
	if l == nil {
		k.makeRoom(now)
		l = rate.NewLimiter(k.rate, burst)
		k.by[key] = l
	}
	if l.Burst() != burst {
		l.SetBurstAt(now, burst)
	}
	return l.ReserveN(now, n).DelayFrom(now)
}

// makeRoom forgets keys until there is room for another: those that have all
// that they can save up, of which nothing is known that is not known of every
// key, or else the one that lacks least. The caller holds k.mu.
func (k *Keyed[K]) makeRoom(now time.Time) {
	if len(k.by) < maxKeys {
		return
	}
	var first K
	least := 0.0
	for key, l := range k.by {
		lacks := float64(l.Burst()) - l.TokensAt(now)
		if lacks <= 0 {
			delete(k.by, key)
		} else if least == 0 || lacks < least {
			first, least = key, lacks
		}
	}
	if len(k.by) >= maxKeys {
		delete(k.by, first)
	}
}

package guard

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
)

// Account has the buckets of a session's rates. Those that are nil limit nothing.
type Account struct {
	tx, rx    *bucket // to and from the LAN
	toGroups  *bucket // packets to groups of the LAN; more are dropped
	toUnknown *bucket // packets to stations that the LAN may not know; more are dropped
}

// overdraft returns how long it takes until the buckets are at the level with which a
// session begins; 0 if they are.
func (a Account) overdraft() (d time.Duration) {
	for _, b := range []*bucket{a.tx, a.rx} {
		if b != nil {
			d = max(d, b.wait(false))
		}
	}
	for _, b := range []*bucket{a.toGroups, a.toUnknown} {
		if b != nil {
			d = max(d, b.untilFull())
		}
	}
	return d
}

// Limit sets the rates to those of the policy. A bucket keeps its level when its rate
// changes.
func (a *Account) Limit(host *policy.Host) {
	change := func(b **bucket, to bounds) {
		switch {
		case to == bounds{}:
			*b = nil
		case *b == nil:
			*b = newBucket(to, sinceStart)
		default:
			(*b).set(to)
		}
	}
	change(&a.tx, bounds{host.MaxTxRate, host.MaxTxPPS})
	change(&a.rx, bounds{host.MaxRxRate, host.MaxRxPPS})
	for _, b := range []**bucket{&a.toGroups, &a.toUnknown} {
		isNew := *b == nil
		change(b, bounds{packets: host.MaxTxGroupPPS})
		if isNew && *b != nil {
			(*b).save()
		}
	}
}

// Accounts keeps the accounts of sessions that have ended overdrawn, until they have
// recovered. Otherwise a host could get rid of an overdraft by connecting again: of a frame
// at least, and of a whole burst on its latency channel, to groups or to unknown stations. A new session gets an
// account that another session of the same owner has left, if there is one. There are never
// more of these than the owner had sessions at a time.
type Accounts struct {
	mu   sync.Mutex
	left map[string][]Account // by owner
}

// Take returns the owner's account with the largest overdraft, or an empty one.
func (k *Accounts) Take(owner string) (a Account) {
	k.mu.Lock()
	defer k.mu.Unlock()
	left := k.left[owner]
	if len(left) == 0 {
		return a
	}
	slices.SortFunc(left, func(x, y Account) int { return cmp.Compare(x.overdraft(), y.overdraft()) })
	a, k.left[owner] = left[len(left)-1], left[:len(left)-1]
	for _, b := range []*bucket{a.tx, a.rx} {
		if b != nil {
			b.begin()
		}
	}
	return a
}

// Put keeps the account of a session that has ended, and removes all accounts that have
// recovered.
func (k *Accounts) Put(owner string, a Account) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left == nil {
		k.left = make(map[string][]Account)
	}
	k.left[owner] = append(k.left[owner], a)
	for o, left := range k.left {
		if left = slices.DeleteFunc(left, func(a Account) bool { return a.overdraft() <= 0 }); len(left) == 0 {
			delete(k.left, o)
		} else {
			k.left[o] = left
		}
	}
}

package iounit

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
)

// account is what the rates of a session are reckoned by.
type account struct{ tx, rx, toGroups *bucket } // nil without a rate

// overdraft is how long it takes until what was overdrawn is paid for, and what a
// session begins with is there again; 0 if nothing is missing.
func (a account) overdraft() (d time.Duration) {
	for _, b := range []*bucket{a.tx, a.rx} {
		if b != nil {
			d = max(d, b.wait(false))
		}
	}
	if a.toGroups != nil {
		d = max(d, a.toGroups.untilFull())
	}
	return d
}

// limit makes the rates those that a host may have. What it has left of a rate
// that changes, or owes, it keeps.
func (a *account) limit(host *policy.Host) {
	now := func() time.Duration { return time.Since(started) }
	change := func(b **bucket, to bounds) {
		switch {
		case to == bounds{}:
			*b = nil
		case *b == nil:
			*b = newBucket(to, now)
		default:
			(*b).set(to)
		}
	}
	change(&a.tx, bounds{host.MaxTxRate, host.MaxTxPPS})
	change(&a.rx, bounds{host.MaxRxRate, host.MaxRxPPS})
	isNew := a.toGroups == nil
	change(&a.toGroups, bounds{packets: host.MaxTxGroupPPS})
	if isNew && a.toGroups != nil {
		a.toGroups.save()
	}
}

// accounts keep the accounts of sessions that have ended overdrawn until that is
// made up for. A host would be rid of it otherwise by coming again: a whole burst
// each time by its latency channel or to groups, and a frame at least. So a session
// goes on with an account that another one of the same owner has left, if there is
// one. There are never more of these than its owner had sessions at a time.
type accounts struct {
	mu   sync.Mutex
	left map[string][]account // by owner
}

// take returns the account that is overdrawn most, or an empty one.
func (k *accounts) take(owner string) (a account) {
	k.mu.Lock()
	defer k.mu.Unlock()
	left := k.left[owner]
	if len(left) == 0 {
		return a
	}
	slices.SortFunc(left, func(a, b account) int { return cmp.Compare(a.overdraft(), b.overdraft()) })
	a, k.left[owner] = left[len(left)-1], left[:len(left)-1]
	for _, b := range []*bucket{a.tx, a.rx} {
		if b != nil {
			b.begin()
		}
	}
	return a
}

// put keeps an account whose session has ended, and forgets those that are
// overdrawn no more.
func (k *accounts) put(owner string, a account) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left == nil {
		k.left = make(map[string][]account)
	}
	k.left[owner] = append(k.left[owner], a)
	for o, left := range k.left {
		if left = slices.DeleteFunc(left, func(a account) bool { return a.overdraft() <= 0 }); len(left) == 0 {
			delete(k.left, o)
		} else {
			k.left[o] = left
		}
	}
}

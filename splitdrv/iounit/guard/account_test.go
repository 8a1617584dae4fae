package guard

import (
	"testing"
	"time"

	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
)

// TestAccounts tests accounts of an owner with several sessions at the same time, each with its
// own rate, and of another owner.
func TestAccounts(t *testing.T) {
	h := &hand{at: time.Hour}
	fresh := func() Account {
		return Account{tx: newBucket(bounds{bits: 8e6}, h.now), rx: newBucket(bounds{bits: 8e6}, h.now)}
	}
	var k Accounts
	if a := k.Take("one"); a != (Account{}) {
		t.Fatalf("%+v of nobody", a)
	}
	h.at += time.Microsecond
	light, heavy, saver := fresh(), fresh(), fresh()
	h.at += time.Microsecond
	light.rx.take(sized(1000), false)
	heavy.tx.take(sized(50_000), false)
	for _, a := range []Account{heavy, saver, light} {
		k.Put("one", a)
	}
	k.Put("two", fresh())
	if len(k.left["one"]) != 2 {
		t.Fatalf("%d accounts, want those two that owe something", len(k.left["one"]))
	}
	if a := k.Take("one"); a != heavy || a.rx.bits.now != 0 || a.tx.bits.now >= 0 {
		t.Errorf("the account that is overdrawn most is not the first: %+v", a)
	}
	if a := k.Take("one"); a != light || a.tx.bits.now != 0 {
		t.Errorf("not the other one: %+v", a)
	}
	if a := k.Take("one"); a != (Account{}) {
		t.Errorf("a third one: %+v", a)
	}
	k.Put("one", heavy)
	// The debt is paid off while no session uses the account.
	h.at += 50 * time.Millisecond
	if k.Put("two", fresh()); k.left["one"] != nil {
		t.Errorf("%+v is left when it is paid for", k.left["one"])
	}
}

// TestLimitKeepsLevels sets the rates of a session again, as a reload of the policy does, the same ones and
// others. A bucket for frames that are dropped begins full. A host must not get another burst afterwards.
func TestLimitKeepsLevels(t *testing.T) {
	var a Account
	a.Limit(&policy.Host{MaxTxRate: 8e6, MaxTxGroupPPS: 1000})
	for _, b := range []*bucket{a.toGroups, a.toUnknown} {
		if b.packets.now != b.packets.burst {
			t.Errorf("at the beginning the level is %d of %d", b.packets.now, b.packets.burst)
		}
	}
	const empty = -17
	for _, b := range []*bucket{a.tx, a.toGroups, a.toUnknown} {
		b.now, b.at = func() time.Duration { return time.Hour }, time.Hour // no time passes
		b.bits.now, b.packets.now = empty, empty
	}
	before := a
	for _, pps := range []int64{1000, 2000} {
		a.Limit(&policy.Host{MaxTxRate: 8e6, MaxTxGroupPPS: pps})
		if a != before {
			t.Fatalf("a bucket is another one: %+v", a)
		}
		if a.tx.bits.now != empty || a.toGroups.packets.now != empty || a.toUnknown.packets.now != empty {
			t.Errorf("levels with %d packets a second: %d, %d, %d", pps, a.tx.bits.now, a.toGroups.packets.now,
				a.toUnknown.packets.now)
		}
	}
}

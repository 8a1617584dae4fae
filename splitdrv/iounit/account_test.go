package iounit

import (
	"fmt"
	"testing"
	"time"

	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
)

// drain takes frames of n bytes from the bucket until none passes, and returns the number of
// bytes taken.
func drain(b *bucket, n int, urgent bool) (bytes int) {
	for b.take(sized(n), urgent) == 1 {
		bytes += n
	}
	return bytes
}

// TestComingAgain has a host open one session after the other for the burst that its latency
// channel has at the beginning of each. No more bytes may pass than in one session.
func TestComingAgain(t *testing.T) {
	for _, way := range []string{"tx", "rx"} {
		for _, owner := range []string{"", "sha256:x"} {
			t.Run(fmt.Sprint(way, " ", owner), func(t *testing.T) {
				may := hostWith("all")
				may.MaxTxRate, may.MaxRxRate = policy.MinRate, policy.MinRate
				c := newClient(t, may)
				c.s.host.owner = owner
				c.s.leave()
				begun, bytes := time.Now(), 0
				for range leastBurst {
					s := newServices(c.s.host, &c.unit.common, c.port, own, 1500, 1500)
					b := s.account.tx
					if way == "rx" {
						b = s.account.rx
					}
					bytes += drain(b, 1000, true)
					s.leave()
				}
				if most := allowed(policy.MinRate, time.Since(begun)) + burstBytes + 1000; float64(bytes) > most {
					t.Errorf("%d bytes in %d sessions, at most %.0f", bytes, leastBurst, most)
				}
				if bytes < burstBytes {
					t.Errorf("%d bytes", bytes)
				}
			})
		}
	}
}

// TestAccounts tests accounts of an owner with several sessions at the same time, each with its
// own rate, and of another owner.
func TestAccounts(t *testing.T) {
	h := &hand{at: time.Hour}
	fresh := func() account {
		return account{tx: newBucket(bounds{bits: 8e6}, h.now), rx: newBucket(bounds{bits: 8e6}, h.now)}
	}
	var k accounts
	if a := k.take("one"); a != (account{}) {
		t.Fatalf("%+v of nobody", a)
	}
	h.at += time.Microsecond
	light, heavy, saver := fresh(), fresh(), fresh()
	h.at += time.Microsecond
	light.rx.take(sized(1000), false)
	heavy.tx.take(sized(50_000), false)
	for _, a := range []account{heavy, saver, light} {
		k.put("one", a)
	}
	k.put("two", fresh())
	if len(k.left["one"]) != 2 {
		t.Fatalf("%d accounts, want those two that owe something", len(k.left["one"]))
	}
	if a := k.take("one"); a != heavy || a.rx.bits.now != 0 || a.tx.bits.now >= 0 {
		t.Errorf("the account that is overdrawn most is not the first: %+v", a)
	}
	if a := k.take("one"); a != light || a.tx.bits.now != 0 {
		t.Errorf("not the other one: %+v", a)
	}
	if a := k.take("one"); a != (account{}) {
		t.Errorf("a third one: %+v", a)
	}
	k.put("one", heavy)
	// The debt is paid off while no session uses the account.
	h.at += 50 * time.Millisecond
	if k.put("two", fresh()); k.left["one"] != nil {
		t.Errorf("%+v is left when it is paid for", k.left["one"])
	}
}

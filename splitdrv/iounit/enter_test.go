package iounit

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/session"
)

func TestEnter(t *testing.T) {
	u := newUnit(t, Config{MaxHosts: 2})
	start := time.Now()
	enter := func(ctx context.Context, a *attachment) error { return u.enter(ctx, a, start.Add(time.Hour)) }
	comer := func(key string, n int) (*attachment, *error) {
		reason := new(error)
		return &attachment{
			host: host{
				key: key, peer: named(key), since: start.Add(time.Duration(n) * time.Second),
				cancel: func(err error) { *reason = err },
			},
			gone: make(chan struct{}),
		}, reason
	}
	a1, why1 := comer("a", 1)
	a2, _ := comer("a", 2)
	a3, why3 := comer("a", 3)
	b, _ := comer("b", 4)
	c, _ := comer("c", 5)
	ctx := t.Context()
	if err := errors.Join(enter(ctx, a1), enter(ctx, b)); err != nil {
		t.Fatal(err)
	}
	if err := enter(ctx, c); !errors.Is(err, errFull) {
		t.Errorf("a third host of two: %v", err)
	}

	a1.cancel = func(err error) { // cancel ends a session
		*why1 = err
		u.leave(a1)
		close(a1.gone)
	}
	if err := enter(ctx, a3); err != nil || u.hosts["a"] != a3 || !errors.Is(*why1, errReplaced) {
		t.Errorf("the host came again: %v; the old session ended by: %v", err, *why1)
	}
	// An older session that has waited since then.
	if err := enter(ctx, a2); !errors.Is(err, errReplaced) || u.hosts["a"] != a3 || *why3 != nil {
		t.Errorf("an older session in place of the latest: %v", err)
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	a4, _ := comer("a", 4)
	if err := enter(done, a4); !errors.Is(err, context.Canceled) {
		t.Errorf("the I/O unit ends: %v", err)
	}
}

// TestEnterWaitsNotForEver has a host open sessions several times while its previous session does
// not end. Each must be refused after a while.
func TestEnterWaitsNotForEver(t *testing.T) {
	u := newUnit(t, Config{})
	synctest.Test(t, func(t *testing.T) {
		comer := func() *attachment {
			return &attachment{
				host: host{key: "a", peer: named("a"), since: time.Now(), cancel: func(error) {}}, gone: make(chan struct{}),
			}
		}
		begin := time.Now()
		if err := u.enter(t.Context(), comer(), begin); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			begin = time.Now()
			deadline := patience(begin, begin.Add(10*time.Second))
			if err := u.enter(t.Context(), comer(), deadline); !errors.Is(err, errEnding) {
				t.Error(err)
			}
			if d := time.Since(begin); d != 5*time.Second {
				t.Errorf("it waited for %v", d)
			}
		}
	})
}

// TestEnterSessionsOfAKey checks that the number of sessions of one key is limited.
func TestEnterSessionsOfAKey(t *testing.T) {
	u := newUnit(t, Config{})
	enter := func(owner, name string) (*attachment, error) {
		a := &attachment{
			host: host{
				key: owner + "/" + name, owner: owner, peer: named(owner), since: time.Now(), cancel: func(error) {},
			},
			gone: make(chan struct{}),
		}
		return a, u.enter(t.Context(), a, time.Now().Add(time.Hour))
	}
	var first *attachment
	for i := range policy.DefaultSessions {
		a, err := enter("one", fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = a
		}
	}
	if _, err := enter("one", "more"); !errors.Is(err, errSessions) {
		t.Errorf("a session too many: %v", err)
	}
	if _, err := enter("two", "0"); err != nil {
		t.Errorf("another key: %v", err)
	}
	for i := range 10 {
		if _, err := enter("", fmt.Sprint(i)); err != nil {
			t.Errorf("without keys: %v", err)
		}
	}
	// A host that replaces its own session does not count twice.
	first.cancel = func(error) {
		u.leave(first)
		close(first.gone)
	}
	if _, err := enter("one", "0"); err != nil {
		t.Errorf("the host came again: %v", err)
	}
}

// TestLeave checks that the addresses of a host that leaves are free at once for other hosts: a
// machine may have moved behind another host.
func TestLeave(t *testing.T) {
	c := newClient(t, hostWith("all"))
	c.filter(protocol.ReceiveFilter{Unicast: []protocol.MAC{machine}}, protocol.CfgOK)
	a, b := c.unit.hosts["a"], c.unit.hosts["b"]
	if taken := c.unit.addresses.taken.Load(); !taken.Has(own) || !taken.Has(machine) || !taken.Has(other) {
		t.Error("addresses of hosts that are there are free")
	}
	c.unit.leave(a)
	if taken := c.unit.addresses.taken.Load(); taken.Has(own) || taken.Has(machine) || !taken.Has(other) ||
		!taken.Has(card) {
		t.Errorf("after a host has left these are taken: %x", *taken)
	}
	if err := c.unit.addresses.claim(&b.host, own, []protocol.MAC{machine}); err != nil {
		t.Error(err)
	}
}

// TestBurst checks that Burst suffices for all sessions that a peer may have, and has a minimum for
// peers with few sessions.
func TestBurst(t *testing.T) {
	u := newUnit(t, Config{MaxHosts: 40, Policy: parsed(t, "hosts: {alpha: {max-sessions: 50}}")})
	for name, want := range map[string]int{"": 16, "alpha": 100, "beta": 16} {
		if n := u.Burst(session.Identity{Name: name}); n != want {
			t.Errorf("%q: %d sessions at once, want %d", name, n, want)
		}
	}
	if n := u.Burst(session.Identity{Name: "alpha", Insecure: true}); n != 80 {
		t.Errorf("without keys: %d sessions at once, want 80", n)
	}
	u.SetPolicy(parsed(t, "hosts: {beta: {max-sessions: 33}}"))
	if n := u.Burst(session.Identity{Name: "beta"}); n != 66 {
		t.Errorf("by another policy: %d sessions at once, want 66", n)
	}
}

package session

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
)

// clocked are openings with a burst for everybody, and a clock.
func clocked(burst int) (o *openings, pass func(time.Duration)) {
	now := time.Unix(1000, 0)
	o = newOpenings(func(Identity) int { return burst })
	o.now = func() time.Time { return now }
	return o, func(d time.Duration) { now = now.Add(d) }
}

// opens is a connection of somebody who opens sessions.
func opens(ip string, id Identity) *Conn {
	c := connFrom(ip)
	c.verdict.Store(&verdict{id: id})
	return c
}

func key(n uint32) Identity {
	return Identity{Fingerprint: Fingerprint{byte(n), byte(n >> 8), byte(n >> 16), 1}}
}

// endless is how many sessions at once are taken for no bound at all.
const endless = 1000

func TestOpenings(t *testing.T) {
	o, pass := clocked(3)
	// burst opens until that is refused, and returns how many were not.
	burst := func(c *Conn) (n int) {
		t.Helper()
		for n < endless {
			err := o.open(c)
			if err == nil {
				n++
				continue
			}
			if !errors.Is(err, ErrTooOften) {
				t.Fatal(err)
			}
			break
		}
		return n
	}
	one := opens("10.0.0.1", key(1))
	if n := burst(one); n != 3 {
		t.Errorf("%d sessions at once, want 3", n)
	}
	if n := burst(opens("10.0.0.2", key(1))); n != 0 {
		t.Errorf("%d sessions more from another address", n)
	}
	if n := burst(opens("10.0.0.1", key(2))); n != 3 {
		t.Errorf("%d sessions at once with another key from there, want 3", n)
	}
	for range 1000 { // none of which costs anything
		burst(one)
	}
	pass(time.Second/openingRate + time.Millisecond)
	if n := burst(one); n != 1 {
		t.Errorf("%d sessions after the wait for one", n)
	}
	pass(time.Hour)
	if n := burst(one); n != 3 {
		t.Errorf("%d sessions after an hour, want 3", n)
	}

	// Keys that change with every start are nobody's.
	anybody := func(n uint32) Identity { id := key(n); id.Insecure = true; return id }
	n := 0
	for i := range uint32(10) {
		if o.open(opens("10.0.0.1", anybody(i))) == nil {
			n++
		}
	}
	if n != 3 {
		t.Errorf("%d sessions at once from one address, want 3", n)
	}
	if n := burst(opens("10.0.0.2", anybody(1))); n != 3 {
		t.Errorf("%d sessions at once from another one, want 3", n)
	}
}

// TestOpeningsByPolicy changes how many somebody may open at once.
func TestOpeningsByPolicy(t *testing.T) {
	o, pass := clocked(0)
	most := 0
	o.burst = func(id Identity) int {
		if id != key(1) {
			t.Errorf("asked about %v", id)
		}
		return most
	}
	for _, most = range []int{0, 5, 2} {
		pass(time.Hour)
		n := 0
		for n < endless && o.open(opens("10.0.0.1", key(1))) == nil {
			n++
		}
		if n != max(most, 1) {
			t.Errorf("%d sessions at once, want %d", n, most)
		}
	}
}

// TestOpeningsForget has more keys than are remembered. Who has spent most is
// remembered, so that the others do not give it back what it has spent.
func TestOpeningsForget(t *testing.T) {
	o, pass := clocked(3)
	greedy := opens("10.0.0.1", key(0))
	for n := 0; o.open(greedy) == nil; n++ {
		if n == endless {
			t.Fatal("there is no bound")
		}
	}
	for i := range uint32(5 * maxOpeners) {
		if err := o.open(opens("10.0.0.1", key(1+i))); err != nil {
			t.Fatalf("key %d: %v", i, err)
		}
		if len(o.by) > maxOpeners {
			t.Fatalf("%d keys are remembered", len(o.by))
		}
	}
	if o.open(greedy) == nil {
		t.Error("a key that has spent all was forgotten")
	}
	pass(time.Second)
	if err := o.open(opens("10.0.0.1", key(1<<20))); err != nil {
		t.Error(err)
	}
	if len(o.by) > 2 { // the others have all that they had
		t.Errorf("%d keys are remembered", len(o.by))
	}
}

// TestOpeningsConserve has many open at random times: nobody gets more than its
// burst and what has come since, and nobody who waits as long as it is told less.
func TestOpeningsConserve(t *testing.T) {
	o, pass := clocked(8)
	r := rand.New(rand.NewPCG(1, 2))
	var opened [5]int
	elapsed := time.Duration(0)
	for range 20000 {
		d := time.Duration(r.Int64N(int64(50 * time.Millisecond)))
		pass(d)
		elapsed += d
		i := r.IntN(len(opened))
		if o.open(opens("10.0.0.1", key(uint32(i)))) == nil {
			opened[i]++
		}
		if most := 8 + int(elapsed.Seconds()*openingRate); opened[i] > most {
			t.Fatalf("%d sessions in %v, at most %d", opened[i], elapsed, most)
		}
	}
	for i, n := range opened {
		if least := int(elapsed.Seconds()*openingRate) - 8; n < least {
			t.Errorf("key %d: %d sessions in %v, of %d", i, n, elapsed, least)
		}
	}
}

// TestTooOften has a host open and drop sessions until it is refused, which it
// is told to wait for. Another one is not.
func TestTooOften(t *testing.T) {
	h, other, u := newKey(t), newKey(t), newKey(t)
	trust := u.Fingerprint().String()
	host, beside := secured(t, h, trust), secured(t, other, trust)
	unit := secured(t, u, "host1="+h.Fingerprint().String(), "host2="+other.Fingerprint().String())
	now := time.Unix(1000, 0)
	ln, rejected := listen(t, ServerConfig{Security: unit, Burst: func(Identity) int { return 3 },
		now: func() time.Time { return now }})
	for range 3 {
		c, s := establish(t, ln, host)
		c.Close()
		s.Close()
	}
	for range 2 {
		err := knock(t, ln, host)
		var refused *RefusedError
		if !errors.As(err, &refused) || refused.Code != CodeBusy || !refused.Retry {
			t.Fatalf("the fourth session at once: %v", err)
		}
		testenv.Explained(t, err.Error())
		if err := rejected.next(t); !errors.Is(err, ErrTooOften) {
			t.Errorf("I/O unit: %v", err)
		}
	}
	// What is wrong with a hello is nobody's to find out then.
	c := rawHost(t, ln, host)
	if _, err := c.Write(frame(`{"type":"hello"}`)); err != nil {
		t.Fatal(err)
	}
	if err := rejected.next(t); !errors.Is(err, ErrTooOften) {
		t.Errorf("I/O unit: %v", err)
	}
	establish(t, ln, beside)

	// Without keys, those who come from one address are one.
	ln, _ = listen(t, ServerConfig{Security: insecure(t), Burst: func(Identity) int { return 1 },
		now: func() time.Time { return now }})
	establish(t, ln, insecure(t))
	err := knock(t, ln, insecure(t))
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Code != CodeBusy || !refused.Retry {
		t.Fatalf("the second session from an address: %v", err)
	}
	testenv.Explained(t, err.Error())
}

package session

import (
	"errors"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/session/internal/identity"
)

// clocked returns a sessionRate with the same burst for all peers, and a function that advances
// its clock.
func clocked(burst int) (r *sessionRate, pass func(time.Duration)) {
	now := time.Unix(1000, 0)
	r = newSessionRate(func(Identity) int { return burst }, func() time.Time { return now })
	return r, func(d time.Duration) { now = now.Add(d) }
}

// opens returns a connection of a peer that opens sessions.
func opens(ip string, id Identity) *Conn {
	c := connFrom(ip)
	c.verdict.Store(&identity.Verdict{ID: id})
	return c
}

func key(n uint32) Identity {
	return Identity{Fingerprint: Fingerprint{byte(n), byte(n >> 8), byte(n >> 16), 1}}
}

// endless is a number of sessions at once that counts as no limit at all.
const endless = 1000

func TestSessionRate(t *testing.T) {
	o, pass := clocked(3)
	// burst opens sessions until one is refused, and returns how many were opened.
	burst := func(c *Conn) (n int) {
		t.Helper()
		for n < endless {
			wait, err := o.open(c)
			if err == nil {
				n++
				continue
			}
			if !errors.Is(err, ErrTooOften) || wait <= 0 {
				t.Fatal(wait, err)
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
	for range 1000 { // refused sessions must cost nothing
		burst(one)
	}
	pass(time.Second/sessionsPerSecond + time.Millisecond)
	if n := burst(one); n != 1 {
		t.Errorf("%d sessions after the wait for one", n)
	}
	pass(time.Hour)
	if n := burst(one); n != 3 {
		t.Errorf("%d sessions after an hour, want 3", n)
	}

	// Keys of insecure peers change with every start, so they identify no peer.
	anybody := func(n uint32) Identity { id := key(n); id.Insecure = true; return id }
	n := 0
	for i := range uint32(10) {
		if _, err := o.open(opens("10.0.0.1", anybody(i))); err == nil {
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

// TestSessionRateByPolicy changes how many sessions a peer may open at once.
func TestSessionRateByPolicy(t *testing.T) {
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
		for n < endless {
			if _, err := o.open(opens("10.0.0.1", key(1))); err != nil {
				break
			}
			n++
		}
		if n != max(most, 1) {
			t.Errorf("%d sessions at once, want %d", n, most)
		}
	}
}

// TestTooOften has a host open and drop sessions until it is refused and told how long to wait.
// Another host must not be refused.
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
		if soonest := time.Second / sessionsPerSecond; refused.After < soonest || refused.After > soonest+2*time.Millisecond {
			t.Errorf("refused for %v, want %v", refused.After, soonest)
		}
		testenv.Explained(t, err.Error())
		if err := rejected.next(t); !errors.Is(err, ErrTooOften) {
			t.Errorf("I/O unit: %v", err)
		}
	}
	// A host that is refused for this must not learn what is wrong with its hello.
	c := rawHost(t, ln, host)
	if _, err := c.Write(frame(`{"type":"hello"}`)); err != nil {
		t.Fatal(err)
	}
	if err := rejected.next(t); !errors.Is(err, ErrTooOften) {
		t.Errorf("I/O unit: %v", err)
	}
	establish(t, ln, beside)

	// Without keys, all hosts with one address count as one.
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

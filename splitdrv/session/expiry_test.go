package session

import (
	"crypto/x509"
	"math"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestExpiryEndsSession has the certificate of either side come to its end while a
// session lasts: the other side ends it by itself.
func TestExpiryEndsSession(t *testing.T) {
	a := newAuthority(t)
	for _, side := range []string{"the host's", "the I/O unit's"} {
		t.Run(side, func(t *testing.T) {
			host, unit := a.member(t, "node17", x509.ExtKeyUsageClientAuth), a.member(t, "gw1", x509.ExtKeyUsageServerAuth)
			ln, _ := listen(t, ServerConfig{Security: unit, PeerTimeout: 100 * time.Millisecond})
			c, s := establishWith(t, ln, ClientConfig{Security: host, PeerTimeout: 100 * time.Millisecond})
			by, of := s.Conn, c.Conn
			if side != "the host's" {
				by, of = of, by
			}
			if by.Err() != nil || of.Err() != nil {
				t.Fatalf("ended before its time: %v, %v", by.Err(), of.Err())
			}
			later := func() time.Time { return time.Now().Add(2 * time.Hour) }
			by.security.now.Store(&later)
			soon(t, by.Done(), "the session does not end")
			endedAs(t, by, of, "expired")
		})
	}
}

// TestCostOfHandshakes spends what handshakes take, by a clock of the test's.
func TestCostOfHandshakes(t *testing.T) {
	now := time.Unix(1000, 0)
	turns := newTurns()
	turns.work = newAllowance(0.1, 0.2, now) // seconds of a processor
	turn := func(took time.Duration) {
		turns.busy = true
		now = now.Add(took)
		turns.finish(now, took)
	}
	is := func(want float64) {
		t.Helper()
		if left := turns.work.by(now); math.Abs(left-want) > 1e-6 {
			t.Errorf("%v s of a processor are left, want %v", left, want)
		}
	}
	// What comes after a turn takes as long again: 6 ms each. There come 0.6 ms
	// during each but the first, when there is no room for more.
	for range 10 {
		turn(3 * time.Millisecond)
	}
	is(0.1 - 10*0.006 + 9*0.0006)
	// However long one takes, it costs as if there were 25 in a second.
	now = now.Add(time.Minute)
	turn(time.Minute)
	is(0.1 - 0.2/25)
}

// TestCostIsWork has turns last a while: they cost what their goroutine worked
// meanwhile, and not what others had of the processor.
func TestCostIsWork(t *testing.T) {
	used := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	for _, work := range []time.Duration{0, 20 * time.Millisecond} {
		turns := newTurns()
		turns.work = newAllowance(1, 10, time.Now()) // it is whole again by the end
		c := connFrom("10.0.0.1")
		if err := turns.take(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		<-time.After(200 * time.Millisecond) // which are others'
		for before := used(); used()-before < work; {
		}
		turns.end(c)
		cost, least := 1-turns.work.left, wholeHandshake*work.Seconds()
		if cost < 0.9*least || cost > least+0.1 {
			t.Errorf("%v of work cost %v s of a processor", work, cost)
		}
	}
}

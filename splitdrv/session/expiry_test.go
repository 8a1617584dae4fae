package session

import (
	"crypto/x509"
	"math"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/splitnic/splitnic/internal/testca"
	"github.com/splitnic/splitnic/internal/ticker"
)

// TestExpiryEndsSession has the certificate of one side expire during a session. The other side
// must end the session.
func TestExpiryEndsSession(t *testing.T) {
	a := newAuthority(t)
	for _, side := range []string{"the host's", "the I/O unit's"} {
		t.Run(side, func(t *testing.T) {
			host, unit := a.member(t, "node17", x509.ExtKeyUsageClientAuth), a.member(t, "gw1", x509.ExtKeyUsageServerAuth)
			// Vouching says that the peer is alive, and nothing about its certificate.
			vouched, timeout := side == "the host's", 100*time.Millisecond
			if vouched {
				timeout = time.Hour
			}
			ln, _ := listen(t, ServerConfig{Security: unit, PeerTimeout: timeout})
			c, s := establishWith(t, ln, ClientConfig{Security: host, PeerTimeout: timeout})
			by, of := s.Conn, c.Conn
			if side != "the host's" {
				by, of = of, by
			}
			if by.Err() != nil || of.Err() != nil {
				t.Fatalf("ended before its time: %v, %v", by.Err(), of.Err())
			}
			later := func() time.Time { return time.Now().Add(2 * time.Hour) }
			by.security.now.Store(&later)
			if vouched {
				by.Vouch(true)
				by.look(ticker.Tick{N: 1})
			}
			soon(t, by.Done(), "the session does not end")
			endedAs(t, by, of, "expired")
		})
	}
}

// TestIntermediateExpires has a host whose certificate outlasts that of the intermediate authority
// that has issued it. The session's term must be that of the latter.
func TestIntermediateExpires(t *testing.T) {
	now := time.Now()
	from := now.Add(-time.Hour)
	a, key := &authority{testca.NewFor(t, from, now.Add(100*time.Hour))}, newKey(t)
	between := &authority{a.Intermediate(t, from, now.Add(time.Hour))}
	own := between.IssueWithin(t, key, "node17", x509.ExtKeyUsageClientAuth, from, now.Add(50*time.Hour))
	host, ofUnit := a.trusting(t, key, testca.Join(t, own, between.File)), newKey(t)
	unit := a.trusting(t, ofUnit, a.IssueWithin(t, ofUnit, "gw1", x509.ExtKeyUsageServerAuth, from, now.Add(50*time.Hour)))
	ln, _ := listen(t, ServerConfig{Security: unit})
	c, s := establish(t, ln, host)
	if term, _ := s.Term(); term.Expires.After(now.Add(time.Hour)) {
		t.Fatalf("the session's term is %v", term)
	}
	s.expire(now.Add(59 * time.Minute))
	if s.Err() != nil {
		t.Errorf("ended before its time: %v", s.Err())
	}
	s.expire(now.Add(2 * time.Hour))
	endedAs(t, s.Conn, c.Conn, "expired")
}

// TestCostOfHandshakes checks the charge for handshakes.
func TestCostOfHandshakes(t *testing.T) {
	h := handshakesWithin(rate.NewLimiter(0.2*rate.Limit(time.Second), int(100*time.Millisecond)))
	for _, tt := range []struct{ worked, want time.Duration }{
		{0, 0}, {3 * time.Millisecond, 6 * time.Millisecond}, // the work after a turn takes as long again
		// However long a handshake takes, its charge allows at least 25 handshakes per second.
		{time.Minute, 200 * time.Millisecond / 25},
	} {
		if got := h.cost(tt.worked); got != tt.want {
			t.Errorf("a turn of %v counts %v, want %v", tt.worked, got, tt.want)
		}
	}
	// Handshakes may use a tenth of each processor.
	if h, want := newHandshakes(), 0.1*float64(runtime.NumCPU())/25; math.Abs(h.most.Seconds()-want) > 1e-6 {
		t.Errorf("a handshake counts %v at most, want %v s", h.most, want)
	}
}

// TestCostIsWork has turns that last a while. The charge must be for the processor time of their
// own goroutine, and not for that of others.
func TestCostIsWork(t *testing.T) {
	used := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	for _, work := range []time.Duration{0, 20 * time.Millisecond} {
		left := rate.NewLimiter(10*rate.Limit(time.Second), int(time.Second)) // is full again before the end
		h := handshakesWithin(left)
		end, err := h.begin(t.Context(), connFrom("10.0.0.1"), false)
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(200 * time.Millisecond) // time of other goroutines
		for before := used(); used()-before < work; {
		}
		left.SetLimit(0)
		end()
		cost, least := time.Second.Seconds()-left.Tokens()/float64(time.Second), wholeHandshake*work.Seconds()
		if cost < 0.9*least || cost > least+0.1 {
			t.Errorf("%v of work cost %v s of a processor", work, cost)
		}
	}
}

package session

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
)

// from is a connection that has only an address.
type from struct {
	net.Conn
	addr net.Addr
}

func (f from) RemoteAddr() net.Addr { return f.addr }

func connAt(addr net.Addr) *Conn {
	return newConn(from{addr: addr}, new(Security), roleHost, time.Now().Add(time.Hour), time.Minute)
}

func connFrom(ip string) *Conn { return connAt(&net.TCPAddr{IP: net.ParseIP(ip), Port: 1}) }

func TestPending(t *testing.T) {
	w := newPendingConns(5)
	w.perMachine = 3
	var conns []*Conn
	for _, step := range []struct {
		ip     string
		out    int // index of the connection that loses its place, -1 for none
		reason error
	}{
		{"10.0.0.1", -1, nil},                        // 0
		{"10.0.0.2", -1, nil},                        // 1
		{"10.0.0.1", -1, nil},                        // 2
		{"10.0.0.1", -1, nil},                        // 3
		{"10.0.0.1", 0, ErrTooManyHandshakesAddress}, // 4: this source has 3
		{"10.0.0.3", -1, nil},                        // 5
		{"10.0.0.4", 2, ErrTooManyHandshakes},        // 6: the oldest of the source with most
		{"10.0.0.3", 3, ErrTooManyHandshakes},        // 7
		{"10.0.0.5", 5, ErrTooManyHandshakes},        // 8: 10.0.0.3 has two now
		{"10.0.0.6", 1, ErrTooManyHandshakes},        // 9: all sources have one, so the oldest
		{"::ffff:10.0.0.6", 9, ErrTooManyHandshakes}, // 10: this source has two now
	} {
		c := connFrom(step.ip)
		conns = append(conns, c)
		_, out, err := w.enter(c)
		if got := slices.Index(conns, out); got != step.out || !errors.Is(err, step.reason) {
			t.Errorf("connection %d from %s takes the place of %d: %v; want %d: %v", len(conns)-1, step.ip, got, err, step.out,
				step.reason)
		}
	}
	for _, c := range conns {
		w.leave(c)
	}
	if w.count() != 0 || w.unknown != 0 || len(w.networks) != 0 {
		t.Errorf("%d left, %d from unknown machines, %v", w.count(), w.unknown, w.networks)
	}
}

// TestHandshakesGivenUp has connections wait for a turn that is never free. They must give up
// with the reason of their end.
func TestHandshakesGivenUp(t *testing.T) {
	h := newHandshakes()
	first, err := h.begin(t.Context(), connFrom("10.0.0.1"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer first()
	cause := errors.New("cause")
	canceled, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	ended := connFrom("10.0.0.1")
	ended.finish(cause)
	late := connFrom("10.0.0.1")
	late.deadline = time.Now()
	for _, tt := range []struct {
		ctx  context.Context
		c    *Conn
		want error
	}{{canceled, connFrom("10.0.0.1"), cause}, {t.Context(), ended, cause}, {t.Context(), late, os.ErrDeadlineExceeded}} {
		if _, err := h.begin(tt.ctx, tt.c, false); !errors.Is(err, tt.want) {
			t.Errorf("%v, want %v", err, tt.want)
		}
	}
	if n, delayed := h.Counts(); n != 1 || delayed != 3 {
		t.Errorf("%d turns, %d delayed", n, delayed)
	}
}

// elsewhere dials from another address of this machine than all other dials of the tests.
func elsewhere(t *testing.T, ln *Listener) (net.Conn, error) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	return d.DialContext(testContext(t), "tcp", ln.Addr().String())
}

// countRejected counts the connections that a listener rejects, by reason.
type countRejected struct {
	mu sync.Mutex
	by map[string]int
}

func (r *countRejected) add(_ net.Addr, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.by[Reason(err)]++
}

func (r *countRejected) get(reason string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.by[reason]
}

// TestThousandStalledConnections opens a thousand connections from one address. Half of them send
// nothing, and half stop within the ClientHello. In between, a host at another address must be
// able to connect.
func TestThousandStalledConnections(t *testing.T) {
	testenv.NoLeaks(t)
	host, unit := friends(t)
	rejected := &countRejected{by: make(map[string]int)}
	ln, err := Listen("127.0.0.1:0", ServerConfig{Security: unit, HandshakeTimeout: time.Minute, Rejected: rejected.add})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	const all, places = 1000, DefaultMaxHandshakes / perMachine
	for i := range all {
		nc, err := elsewhere(t, ln)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if i%2 == 1 {
			// The beginning of a record with the beginning of a ClientHello.
			if _, err := nc.Write([]byte{22, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3}); err != nil {
				t.Fatal(err)
			}
		}
		if i%250 == 100 {
			establish(t, ln, host)
		}
	}
	establish(t, ln, host)
	testenv.Eventually(t, func() bool { return rejected.get("too-many-handshakes-address") == all-places }, "%d dropped",
		all-places)
	testenv.Eventually(t, func() bool { return ln.Stats().Handshaking == places }, "%d places taken", places)
	if s := ln.Stats(); s.Connections != all+5 || s.Handshakes != 5 {
		t.Errorf("%+v", s)
	}
}

// TestFloodOfHandshakes makes handshakes with untrusted keys as fast as possible from one
// address. A host at another address must be able to connect each time.
func TestFloodOfHandshakes(t *testing.T) {
	host, unit := friends(t)
	unknown := secured(t, newKey(t), unit.Fingerprint().String())
	rejected := &countRejected{by: make(map[string]int)}
	ln, err := Listen("127.0.0.1:0", ServerConfig{Security: unit, HandshakeTimeout: time.Minute, Rejected: rejected.add})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var over atomic.Bool
	var flood sync.WaitGroup
	for range 2 * DefaultMaxHandshakes / perMachine {
		flood.Go(func() {
			for !over.Load() {
				nc, err := elsewhere(t, ln)
				if err != nil {
					t.Error(err)
					return
				}
				c := newConn(nc, unknown, roleUnit, time.Now().Add(time.Minute), time.Minute)
				_ = tls.Client(nc, c.tlsConfig()).HandshakeContext(testContext(t)) // may fail
				nc.Close()
			}
		})
	}
	testenv.Eventually(t, func() bool { return ln.Stats().Delayed > 20 }, "handshakes that wait for their turn")
	for range 5 {
		c, s := establish(t, ln, host)
		c.Close()
		s.Close()
	}
	over.Store(true)
	flood.Wait()
	if n := rejected.get("too-many-handshakes-address"); n == 0 {
		t.Error("nobody was dropped")
	}
	if n := rejected.get("too-many-handshakes"); n != 0 {
		t.Errorf("%d were dropped for the sake of other addresses", n)
	}
}

// TestFloodOfHeartbeats sends heartbeats until they are throttled. The end of the session must
// still be noticed.
func TestFloodOfHeartbeats(t *testing.T) {
	host, unit := friends(t)
	ln, _ := listen(t, ServerConfig{Security: unit})
	// The kernel gives up a peer that does not read for half of this time-out.
	c, s := establishWith(t, ln, ClientConfig{Security: host, PeerTimeout: time.Minute})
	// The sockets hold all these heartbeats. With more, a reader that starts late would find the
	// sockets full, and would then read too slowly for the kernel of the sender.
	many := bytes.Repeat(frame(""), 4*heartbeatBurst)
	c.writing.Lock()
	_, err := c.tls.Write(many)
	c.writing.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, func() bool { return s.HeartbeatsThrottled() > 0 }, "heartbeats that wait")
	// The end must still be noticed.
	c.Close()
	waitDone(t, s.Conn)
}

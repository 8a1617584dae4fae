package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
)

func TestAllowance(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	a := newAllowance(3, 10, start)
	for range 3 {
		if w := a.wait(at(0)); w != 0 {
			t.Fatalf("%v to wait with %v left", w, a.left)
		}
		a.spend(at(0), 1)
	}
	if w := a.wait(at(0)); w <= 0 || w > time.Millisecond {
		t.Errorf("%v to wait when all is spent", w)
	}
	a.spend(at(0), 2)
	if w := a.wait(at(50)); w < 150*time.Millisecond || w > 151*time.Millisecond {
		t.Errorf("%v to wait when 1.5 too many are spent", w)
	}
	if w := a.wait(at(201)); w != 0 {
		t.Errorf("%v to wait when it is paid back", w)
	}
	a.spend(at(100000), 1)
	if a.left != 2 {
		t.Errorf("%v left of 3", a.left)
	}
}

func TestSource(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.7:1":             "[192.0.0.0/16 192.0.2.0/24 192.0.2.7/32]",
		"[::ffff:192.0.2.7]:1":    "[192.0.0.0/16 192.0.2.0/24 192.0.2.7/32]",
		"[2001:db8:1:2345:3::]:1": "[2001:db8:1::/48 2001:db8:1:2300::/56 2001:db8:1:2345::/64]",
		"[fe80::7%eth0]:1":        "[fe80::/10 fe80::/64 fe80::7/128]",
	} {
		a := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))
		if got := fmt.Sprint(sourceOf(a)); got != want {
			t.Errorf("%v is from %v, want %v", addr, got, want)
		}
	}
	if got := sourceOf(&net.UnixAddr{}); got != (source{}) || got.valid() {
		t.Errorf("a unix socket is from %v", got)
	}
}

// from is a connection that only has an address.
type from struct {
	net.Conn
	addr net.Addr
}

func (f from) RemoteAddr() net.Addr { return f.addr }

func connFrom(ip string) *Conn {
	addr := &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}
	return &Conn{security: new(Security), raw: from{addr: addr}, deadline: time.Now().Add(time.Minute),
		done: make(chan struct{})}
}

func TestCrowd(t *testing.T) {
	w := newCrowd(5)
	w.perSource = 3
	var conns []*Conn
	for _, step := range []struct {
		ip     string
		out    int // index among all that came, -1 for none
		reason error
	}{
		{"10.0.0.1", -1, nil},              // 0
		{"10.0.0.2", -1, nil},              // 1
		{"10.0.0.1", -1, nil},              // 2
		{"10.0.0.1", -1, nil},              // 3
		{"10.0.0.1", 0, ErrCrowdedSource},  // 4: that source has 3
		{"10.0.0.3", -1, nil},              // 5
		{"10.0.0.4", 2, ErrCrowded},        // 6: the oldest of the source that has most
		{"10.0.0.3", 3, ErrCrowded},        // 7
		{"10.0.0.5", 5, ErrCrowded},        // 8: 10.0.0.3 has two now
		{"10.0.0.6", 1, ErrCrowded},        // 9: all have one, so the oldest
		{"::ffff:10.0.0.6", 9, ErrCrowded}, // 10: that source has two with it
	} {
		c := connFrom(step.ip)
		conns = append(conns, c)
		out, err := w.enter(c)
		if got := slices.Index(conns, out); got != step.out || !errors.Is(err, step.reason) {
			t.Errorf("connection %d from %s takes the place of %d: %v; want %d: %v", len(conns)-1, step.ip, got, err, step.out,
				step.reason)
		}
	}
	for _, c := range conns {
		w.leave(c)
	}
	if w.count() != 0 || w.strange != 0 || len(w.networks) != 0 {
		t.Errorf("%d left, %d strangers, %v", w.count(), w.strange, w.networks)
	}
}

// TestTurnsRotate has many of one source wait, and one of another.
func TestTurnsRotate(t *testing.T) {
	now := time.Now()
	turns := newTurns()
	turns.busy = true
	var waiters []*waiter
	for _, ip := range []string{"10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.3"} {
		w := newWaiter(sourceOf(connFrom(ip).RemoteAddr()), false)
		waiters = append(waiters, w)
		turns.queue = append(turns.queue, w)
	}
	var order []int
	for range waiters {
		turns.finish(now, 0)
		for i, w := range waiters {
			select {
			case <-w.turn:
				if !slices.Contains(order, i) {
					order = append(order, i)
				}
			default:
			}
		}
	}
	if want := []int{0, 3, 5, 1, 4, 2}; !slices.Equal(order, want) {
		t.Errorf("turns in the order %v, want %v", order, want)
	}
	if len(turns.served) != 0 || len(turns.queue) != 0 {
		t.Errorf("left: %v, %v", turns.served, turns.queue)
	}
}

// TestTurnsCost lets turns take all that there is for them.
func TestTurnsCost(t *testing.T) {
	now := time.Now()
	turns := newTurns()
	turns.work = newAllowance(1, 1, now)
	turns.busy = true
	w := &waiter{turn: make(chan struct{})}
	turns.queue = append(turns.queue, w)
	turns.finish(now, time.Hour) // it counts as 1/leastTurns
	<-w.turn
	if left := turns.work.left; left < 1-1.01/leastTurns || left >= 1 {
		t.Errorf("%v left of 1", left)
	}
	turns.work.spend(now, 2)
	turns.queue = append(turns.queue, &waiter{turn: make(chan struct{})})
	turns.finish(now, 0)
	if turns.busy || turns.later == nil {
		t.Errorf("busy %t, timer %v: a turn was given that there is no time for", turns.busy, turns.later)
	}
	turns.later.Stop()
}

func TestTurnsGivenUp(t *testing.T) {
	turns := newTurns()
	turns.busy = true
	cause := errors.New("cause")
	canceled, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	ended := connFrom("10.0.0.1")
	ended.end(cause)
	late := connFrom("10.0.0.1")
	late.deadline = time.Now()
	for _, tt := range []struct {
		ctx  context.Context
		c    *Conn
		want error
	}{{canceled, connFrom("10.0.0.1"), cause}, {t.Context(), ended, cause}, {t.Context(), late, os.ErrDeadlineExceeded}} {
		if err := turns.take(tt.ctx, tt.c); !errors.Is(err, tt.want) {
			t.Errorf("%v, want %v", err, tt.want)
		}
	}
	if len(turns.queue) != 0 || len(turns.served) != 0 {
		t.Errorf("left: %v, %v", turns.queue, turns.served)
	}
	if n, delayed := turns.counts(); n != 0 || delayed != 3 {
		t.Errorf("%d turns, %d delayed", n, delayed)
	}
}

// elsewhere dials from another address of this machine than everybody else.
func elsewhere(t *testing.T, ln *Listener) (net.Conn, error) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	return d.DialContext(testContext(t), "tcp", ln.Addr().String())
}

// countRejected counts what a listener rejects, by reason.
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

// TestThousandStalledConnections opens a thousand connections from one address,
// of which some say nothing and some stop within the ClientHello. A host from
// another one connects among them.
func TestThousandStalledConnections(t *testing.T) {
	testenv.NoLeaks(t)
	host, unit := friends(t)
	rejected := &countRejected{by: make(map[string]int)}
	ln, err := Listen("127.0.0.1:0", ServerConfig{Security: unit, HandshakeTimeout: time.Minute, Rejected: rejected.add})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	const all, places = 1000, DefaultMaxHandshakes / perSource
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
	testenv.Eventually(t, func() bool { return rejected.get("crowded-address") == all-places }, "%d dropped", all-places)
	testenv.Eventually(t, func() bool { return ln.Stats().Handshaking == places }, "%d places taken", places)
	if s := ln.Stats(); s.Connections != all+5 || s.Handshakes != 5 {
		t.Errorf("%+v", s)
	}
}

// TestFloodOfHandshakes has strangers shake hands as fast as they can from one
// address. A host from another one gets through each time.
func TestFloodOfHandshakes(t *testing.T) {
	host, unit := friends(t)
	stranger := secured(t, newKey(t), unit.Fingerprint().String())
	rejected := &countRejected{by: make(map[string]int)}
	ln, err := Listen("127.0.0.1:0", ServerConfig{Security: unit, HandshakeTimeout: time.Minute, Rejected: rejected.add})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var over atomic.Bool
	var strangers sync.WaitGroup
	for range 2 * DefaultMaxHandshakes / perSource {
		strangers.Go(func() {
			for !over.Load() {
				nc, err := elsewhere(t, ln)
				if err != nil {
					t.Error(err)
					return
				}
				c := newConn(nc, stranger, roleUnit, time.Now().Add(time.Minute), time.Minute)
				_ = c.tls.HandshakeContext(testContext(t)) // whatever becomes of it
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
	strangers.Wait()
	if n := rejected.get("crowded-address"); n == 0 {
		t.Error("nobody was dropped")
	}
	if n := rejected.get("crowded"); n != 0 {
		t.Errorf("%d were dropped for the sake of other addresses", n)
	}
}

// TestFloodOfHeartbeats sends heartbeats until they are no longer read as they
// come.
func TestFloodOfHeartbeats(t *testing.T) {
	host, unit := friends(t)
	ln, _ := listen(t, ServerConfig{Security: unit})
	c, s := establish(t, ln, host)
	many := bytes.Repeat(frame(""), heartbeatBurst/4)
	deadline := testContext(t)
	c.writing.Lock()
	for s.Rested() == 0 && deadline.Err() == nil {
		if _, err := c.tls.Write(many); err != nil {
			t.Fatal(err)
		}
	}
	c.writing.Unlock()
	if s.Rested() == 0 {
		t.Error("the heartbeats were read as they came")
	}
	// The end is noticed all the same.
	c.Close()
	waitDone(t, s.Conn)
}

package host

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// attachments returns a function that makes sessions in the state before the hello, whose channels
// are not connected.
func attachments(t *testing.T) (begin func(addr string) *attachment) {
	t.Helper()
	trust, err := session.Insecure()
	if err != nil {
		t.Fatal(err)
	}
	ln, err := session.Listen(testenv.Loopback()+":0", session.ServerConfig{Security: trust})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	dev := fabrictest.New().Device("host")
	t.Cleanup(func() { dev.Close() })
	return func(addr string) *attachment {
		t.Helper()
		client, err := session.Dial(t.Context(), ln.Addr().String(), session.ClientConfig{Security: trust})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := messaging.New(messaging.Config{Device: dev, Mode: protocol.ModeSend})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			client.Close()
			conn.Close()
		})
		return &attachment{addr: addr, client: client, conn: conn}
	}
}

func newTestRetired() *retired {
	r := &retired{log: slog.New(slog.DiscardHandler)}
	r.fewer.L = &r.mu
	return r
}

// ended waits until all retired sessions are closed, and reports whether the client and the
// channels of this session are closed.
func (a *attachment) ended(r *retired) bool {
	r.wait()
	return a.client.Err() != nil && a.conn.Err() != nil
}

// TestStandbyHeld puts sessions on standby and takes them. It expects that no unused session stays
// open, and that no session is taken that has ended, or is with another I/O unit.
func TestStandbyHeld(t *testing.T) {
	begin := attachments(t)
	r := newTestRetired()
	s := &standby{opener: &opener{retired: r}}
	a, b, c := begin("a"), begin("b"), begin("c")
	s.hold(t.Context(), a)
	if s.take("b") != nil || a.ended(r) {
		t.Error("a session with another I/O unit is taken, or has ended")
	}
	s.hold(t.Context(), b)
	if !a.ended(r) || b.ended(r) {
		t.Error("of two sessions not the later one is on standby alone")
	}
	if addr, why := s.status(); addr != b.addr || why != nil {
		t.Errorf("on standby is %q, %v", addr, why)
	}
	if s.unhold(a, nil) {
		t.Error("a session was on standby that is not")
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	s.hold(over, c)
	if !c.ended(r) || b.ended(r) {
		t.Error("a session is put on standby for one that is not in use any more")
	}
	if s.take(uplink.None) != b || s.take(uplink.None) != nil || b.ended(r) {
		t.Error("what is on standby is not taken once")
	}
	for _, end := range []func(){func() { a.client.Close() }, func() { a.conn.Abort(errors.New("it broke")) }} {
		a = begin("a")
		s.hold(t.Context(), a)
		end()
		if addr, _ := s.status(); addr != "" || s.take("a") != nil || s.take(uplink.None) != nil {
			t.Error("a session is taken, or shown, that has ended")
		}
		s.hold(t.Context(), begin("b")) // by another manager, before a's has noticed the end
		if !a.ended(r) {
			t.Error("a session that has ended is not closed when another takes its place")
		}
	}
	s.retired.endUnused(s.take(uplink.None))
	r.wait()
}

// TestSwitchInVain submits switch requests with a session, which are not handled. It expects an
// error, and the end of the session.
func TestSwitchInVain(t *testing.T) {
	begin := attachments(t)
	r := newTestRetired()
	w := &switching{requests: make(chan *switchRequest), over: make(chan struct{}), retired: r}
	gone, cancel := context.WithCancelCause(t.Context())
	given := errors.New("given up")
	cancel(given)
	a := begin("a")
	if err := w.submit(gone, newSwitchRequest("a", a, uplink.ReasonCommand)); !errors.Is(err, given) || !a.ended(r) {
		t.Errorf("%v, ended: %t", err, a.ended(r))
	}
	close(w.over)
	a = begin("a")
	if err := w.submit(t.Context(), newSwitchRequest("a", a, uplink.ReasonCommand)); !errors.Is(err, errStopping) ||
		!a.ended(r) {
		t.Errorf("%v, ended: %t", err, a.ended(r))
	}
}

// TestOpenedTooLate opens a session after the host was told to end, and expects the session to be
// closed.
func TestOpenedTooLate(t *testing.T) {
	r := newTestRetired()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	race := &race{
		Race: uplink.NewRace([]string{"a"}, time.Minute, &uplink.Backoff{Min: 1, Max: 1}), opener: &opener{retired: r},
		overtake: func(error) {}, opened: make(chan opened, 1),
	}
	a := attachments(t)("a")
	race.opened <- opened{a: a}
	if got, err := race.run(ctx); got != nil || err != nil || !a.ended(r) {
		t.Errorf("%v, %v, ended: %t", got, err, a.ended(r))
	}
}

// TestHandlersOfALaterSession changes the handlers while a session is made. It expects the session
// to have them when it is put to use.
func TestHandlersOfALaterSession(t *testing.T) {
	a := attachments(t)("a")
	budget := 7
	chosen, err := a.conn.Handling().Change(cq.HandlerChange{
		Handlers: []cq.HandlerPatch{{Number: 1, Budget: &budget}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &sessions{cfg: &Config{Log: slog.New(slog.DiscardHandler)}, handling: handling{Handling: chosen, changes: 1}}
	if s.use(a); a.conn.Handling().Handlers[1].Budget != budget {
		t.Errorf("%+v", a.conn.Handling())
	}
}

// TestSwitchToTheOneInUse requests a switch to the I/O unit to which the host has already switched
// meanwhile. It expects an error, and the end of the session that was made for the request.
func TestSwitchToTheOneInUse(t *testing.T) {
	begin := attachments(t)
	h := new(Host)
	r := &h.retired
	r.log, r.fewer.L = slog.New(slog.DiscardHandler), &r.mu
	inUse, to := begin("b"), begin("b")
	o := newSwitchRequest("b", to, uplink.ReasonCommand)
	over := h.switchOver(t.Context(), inUse, o, new(ending))
	if over || <-o.done == nil || !to.ended(r) || inUse.ended(r) {
		t.Errorf("over: %t, ended: %t, the one in use: %t", over, to.ended(r), inUse.ended(r))
	}
}

// TestStandbyManagerEnds ends a manager, and expects the end of its sessions: the one on standby,
// one that is ready, and one that is established meanwhile.
func TestStandbyManagerEnds(t *testing.T) {
	begin := attachments(t)
	r := newTestRetired()
	s := &standby{opener: &opener{retired: r}}
	held, ready, coming := begin("a"), begin("b"), begin("c")
	s.hold(t.Context(), held)
	m := &standbyManager{
		standby: s, abandon: func() {}, results: make(chan prepared, 2), pending: 2,
		ready: map[string]*attachment{"b": ready}, held: held,
	}
	m.results <- prepared{"d", nil, errors.New("abandoned")}
	m.results <- prepared{"c", coming, nil}
	m.end()
	for _, a := range []*attachment{held, ready, coming} {
		if !a.ended(r) {
			t.Errorf("the session with %s goes on", a.addr)
		}
	}
}

// TestFailureAfterASession has the same failure before and after a session. It expects one warning
// for each.
func TestFailureAfterASession(t *testing.T) {
	s := &sessions{cfg: &Config{Log: slog.New(slog.DiscardHandler)}}
	failure := errors.New("it broke")
	for range 2 {
		for _, want := range []slog.Level{slog.LevelWarn, slog.LevelDebug} {
			if got := s.level("a", failure); got != want {
				t.Errorf("logged as %v, want %v", got, want)
			}
		}
		s.use(attachments(t)("a"))
	}
}

// TestResetOfASessionThatEnded has an I/O unit's replies, to a reset and to another request, arrive
// when another session is in use. It expects the netdevice to stay unchanged.
func TestResetOfASessionThatEnded(t *testing.T) {
	cfg := &Config{Netdev: carried{}, Log: slog.New(slog.DiscardHandler)}
	s := &sessions{cfg: cfg}
	s.current.conn = new(messaging.Conn)
	d, another := newNetdev(cfg, s), new(messaging.Conn)
	if err := d.reset(another); !errors.Is(err, ErrNoSession) {
		t.Error(err)
	}
	if err := d.enterReply(another, nil, protocol.CfgOK, nil); err != nil {
		t.Error(err)
	}
}

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

// newTestStandby returns a standby without keep, and a function that puts a session on standby.
func newTestStandby(t *testing.T, r *retired) (s *standby, hold func(*attachment)) {
	t.Helper()
	cfg := &Config{Log: slog.New(slog.DiscardHandler)}
	s = &standby{
		opener: &opener{cfg: cfg, retired: r}, taken: make(chan struct{}, 1),
		abandon: func() {}, results: make(chan prepared, 2),
	}
	s.ctx, s.cancel = context.WithCancel(t.Context())
	s.trial = s.ctx
	return s, func(b *attachment) {
		s.machine = uplink.NewStandby[*attachment](uplink.Wanted{Others: []string{b.addr}}, 0, 0, testBackoff())
		s.machine.Start(time.Now())
		s.pending++
		s.enter(prepared{addr: b.addr, b: b})
	}
}

func testBackoff() *uplink.Backoff {
	return &uplink.Backoff{Min: time.Second, Max: time.Second, Rand: func(n int64) int64 { return n - 1 }}
}

// TestStandbyTaken takes sessions on standby. It expects that each is taken once, and none that has
// ended or is with another I/O unit, and that one that is taken is not ended.
func TestStandbyTaken(t *testing.T) {
	begin := attachments(t)
	r := newTestRetired()
	s, hold := newTestStandby(t, r)
	a := begin("a")
	hold(a)
	if s.take("b") != nil || a.ended(r) {
		t.Error("a session with another I/O unit is taken, or has ended")
	}
	if addr, why := s.status(); addr != "a" || why != nil {
		t.Errorf("on standby is %q, %v", addr, why)
	}
	if s.take("a") != a || s.take("a") != nil || s.take(uplink.None) != nil {
		t.Error("what is on standby is not taken once")
	}
	s.lost(a, errDrains)
	if addr, why := s.status(); addr != "" || why != nil || a.ended(r) {
		t.Errorf("on standby is %q, %v, ended: %t", addr, why, a.ended(r))
	}
	hold(a)
	if s.stop() != a || s.ctx.Err() == nil {
		t.Error("a standby that stops does not return its session, or goes on")
	}
	if s.end(); a.ended(r) {
		t.Error("a session was taken, and is ended")
	}
}

// TestStandbyLost ends sessions on standby. It expects that none is taken or shown, and that its
// end, when it is noticed, closes it and is the reason why there is none.
func TestStandbyLost(t *testing.T) {
	begin := attachments(t)
	r := newTestRetired()
	s, hold := newTestStandby(t, r)
	a := begin("a")
	for _, end := range []func(){func() { a.client.Close() }, func() { a.conn.Abort(errors.New("it broke")) }} {
		a = begin("a")
		hold(a)
		end()
		if addr, _ := s.status(); addr != "" || s.take("a") != nil || s.take(uplink.None) != nil {
			t.Error("a session is taken, or shown, that has ended")
		}
		s.lost(a, errDrains)
		if _, why := s.status(); !errors.Is(why, errDrains) || !a.ended(r) {
			t.Errorf("%v, ended: %t", why, a.ended(r))
		}
	}
	hold(begin("a"))
	if s.take("a"); s.reason != nil {
		t.Errorf("an earlier session is the reason: %v", s.reason)
	}
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

// TestStandbyEnds expects the end of the sessions that nobody has taken when there is no need for
// them any more: the one on standby, one that is ready, and one that is established meanwhile.
func TestStandbyEnds(t *testing.T) {
	begin := attachments(t)
	r := newTestRetired()
	s, hold := newTestStandby(t, r)
	held, ready, coming := begin("a"), begin("b"), begin("c")
	hold(held)
	s.end()

	s.machine = uplink.NewStandby[*attachment](uplink.Wanted{Others: []string{"b", "c", "d"}}, 0, 0, testBackoff())
	now := time.Now()
	s.machine.Start(now)
	s.machine.Tick(now.Add(time.Minute))
	s.machine.Tick(now.Add(time.Hour))
	s.pending = 3
	s.enter(prepared{addr: "b", b: ready})
	if ready.ended(r) {
		t.Error("a session ends while others are opened")
	}
	s.results <- prepared{"d", nil, errors.New("abandoned")}
	s.results <- prepared{"c", coming, nil}
	s.end()
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

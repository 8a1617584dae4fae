package session

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/internal/ticker"
	"github.com/splitnic/splitnic/vnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHandshake(t *testing.T) {
	host, unit := friends(t)
	ln, _ := listen(t, ServerConfig{Security: unit})
	ctx := testContext(t)

	c, err := dial(t, ln, host)
	if err != nil {
		t.Fatal(err)
	}
	welcomes := make(chan Welcome, 1)
	accepted := make(chan error, 1)
	go func() {
		w, err := c.Hello(ctx, testHello())
		welcomes <- w
		if err == nil {
			err = c.Accept(ctx, testAccept())
		}
		accepted <- err
	}()
	s, err := ln.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	said := testHello()
	said.Run = host.run
	if diff := cmp.Diff(said, s.Hello()); diff != "" {
		t.Errorf("hello (-sent +heard):\n%s", diff)
	}
	accept, err := s.Welcome(ctx, testWelcome())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(testAccept(), accept); diff != "" {
		t.Errorf("accept (-sent +heard):\n%s", diff)
	}
	want := testWelcome()
	want.Version = 1
	want.Features = []string{"late", "renew"}
	want.Offloads = vnet.TSO4
	want.Platform, want.Run = host.Platform(), unit.run
	if diff := cmp.Diff(want, <-welcomes); diff != "" {
		t.Errorf("welcome (-want +heard):\n%s", diff)
	}
	select {
	case err := <-accepted:
		t.Fatalf("the host's Accept returned before the I/O unit was ready: %v", err)
	default:
	}
	ready := make(chan error, 1)
	go func() { ready <- s.Ready(ctx) }()
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ready:
		t.Fatalf("the I/O unit's Ready returned before the host was ready: %v", err)
	default:
	}
	if err := c.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-ready; err != nil {
		t.Fatal(err)
	}

	if got := c.Peer(); got != (Identity{Name: "unit1", Fingerprint: unit.Fingerprint()}) {
		t.Errorf("the host sees %v", got)
	}
	if got := s.Peer(); got != (Identity{Name: "host1", Fingerprint: host.Fingerprint()}) {
		t.Errorf("the I/O unit sees %v", got)
	}
	if c.Err() != nil || s.Err() != nil {
		t.Errorf("established, but with errors %v and %v", c.Err(), s.Err())
	}
}

func TestBye(t *testing.T) {
	host, unit := friends(t)
	ln, _ := listen(t, ServerConfig{Security: unit})
	for _, fromHost := range []bool{true, false} {
		c, s := establish(t, ln, host)
		from, to := s.Conn, c.Conn
		if fromHost {
			from, to = c.Conn, s.Conn
		}
		if err := from.Bye(CodeShuttingDown, "told\nto"); err != nil {
			t.Error(err)
		}
		var bye *ByeError
		if err := waitDone(t, to); !errors.As(err, &bye) || *bye != (ByeError{CodeShuttingDown, "told?to"}) {
			t.Errorf("fromHost=%v: the other side ended with %v", fromHost, err)
		}
		if err := waitDone(t, from); !errors.Is(err, net.ErrClosed) {
			t.Errorf("fromHost=%v: this side ended with %v", fromHost, err)
		}
		if err := errors.Join(from.Bye(CodeShuttingDown, "again"), from.Close(), to.Close()); err != nil {
			t.Errorf("closing again: %v", err)
		}
	}
}

func TestPeerGone(t *testing.T) {
	host, unit := friends(t)
	ln, _ := listen(t, ServerConfig{Security: unit})
	for _, host1 := range []bool{true, false} {
		c, s := establish(t, ln, host)
		dying, left := s.Conn, c.Conn
		if host1 {
			dying, left = c.Conn, s.Conn
		}
		// The kernel does the same for a killed process.
		dying.raw.Close()
		if err := waitDone(t, left); !errors.Is(err, ErrPeerGone) {
			t.Errorf("ended with %v", err)
		}
	}
}

func TestPeerGoneDuringHandshake(t *testing.T) {
	host, unit := friends(t)
	ln, _ := listen(t, ServerConfig{Security: unit})
	c, err := dial(t, ln, host)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if s, err := ln.Accept(testContext(t)); err == nil {
			s.Close()
		}
	}()
	if _, err := c.Hello(testContext(t), testHello()); !errors.Is(err, ErrPeerGone) {
		t.Errorf("hello: %v", err)
	}
	if err := waitDone(t, c.Conn); !errors.Is(err, ErrPeerGone) {
		t.Errorf("ended with %v", err)
	}
}

func TestRefuse(t *testing.T) {
	host, unit := friends(t)
	ln, _ := listen(t, ServerConfig{Security: unit})
	for code, retry := range map[Code]bool{CodeFull: true, CodeBusy: true, CodeShuttingDown: true, CodePolicy: false,
		CodeMode: false} {
		refused := make(chan error, 1)
		go func() {
			s, err := ln.Accept(testContext(t))
			if err == nil {
				err = s.Refuse(code, "not you")
			}
			refused <- err
		}()
		var got *RefusedError
		want := RefusedError{Code: code, Message: "not you", Retry: retry}
		if err := call(t, ln, host); !errors.As(err, &got) || *got != want {
			t.Errorf("%s: host got %v", code, err)
		}
		if err := <-refused; err != nil {
			t.Errorf("%s: %v", code, err)
		}
	}
}

func TestCloseUnblocksSteps(t *testing.T) {
	host, unit := friends(t)
	ln, _ := listen(t, ServerConfig{Security: unit})
	c, err := dial(t, ln, host)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if s, err := ln.Accept(testContext(t)); err == nil { // the hello has arrived, and the host waits
			c.Close()
			s.Close()
		}
	}()
	if _, err := c.Hello(testContext(t), testHello()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("hello: %v", err)
	}
}

func TestContextEndsStep(t *testing.T) {
	host, unit := friends(t)
	ln, _ := listen(t, ServerConfig{Security: unit})
	c, err := dial(t, ln, host)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(testContext(t))
	reason := errors.New("enough")
	go func() {
		if s, err := ln.Accept(ctx); err == nil {
			cancel(reason)
			s.Close()
		}
	}()
	if _, err := c.Hello(ctx, testHello()); !errors.Is(err, reason) {
		t.Errorf("hello: %v", err)
	}
	if _, err := ln.Accept(ctx); !errors.Is(err, reason) {
		t.Errorf("accept: %v", err)
	}
}

// TestContextEndsStepCleanly has the I/O unit give up a handshake while it writes. The host must
// find its peer gone, and not get a record that it cannot decrypt.
func TestContextEndsStepCleanly(t *testing.T) {
	host, unit := friends(t)
	ln, _ := listen(t, ServerConfig{Security: unit})
	for range 30 {
		c, err := dial(t, ln, host)
		if err != nil {
			t.Fatal(err)
		}
		left := make(chan error, 1)
		go func() {
			_, err := c.Hello(testContext(t), testHello())
			if err == nil {
				err = errors.Join(c.Accept(testContext(t), testAccept()), c.Ready(testContext(t)))
			}
			left <- err
		}()
		s, err := ln.Accept(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(testContext(t))
		cancel()
		if _, err := s.Welcome(ctx, testWelcome()); !errors.Is(err, context.Canceled) {
			t.Errorf("welcome: %v", err)
		}
		err = <-left
		var op *net.OpError
		if !errors.Is(err, ErrPeerGone) || errors.As(err, &op) && op.Op == "local error" {
			t.Errorf("the host's session ends with %v", err)
		}
		if err := errors.Join(s.Close(), c.Close()); err != nil {
			t.Error(err)
		}
	}
}

func TestDeadlineOfHandshake(t *testing.T) {
	host, unit := friends(t)
	ln, _ := listen(t, ServerConfig{Security: unit})
	c, err := Dial(testContext(t), ln.Addr().String(),
		ClientConfig{Security: host, HandshakeTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.deadline = time.Now().Add(100 * time.Millisecond) // after Dial, which may take long
	// The test does not accept, so there is no welcome.
	_, err = c.Hello(testContext(t), testHello())
	if err == nil || !strings.Contains(err.Error(), "no answer in time") {
		t.Errorf("hello: %v", err)
	}
}

func TestStepsInOrder(t *testing.T) {
	host, unit := friends(t)
	ln, _ := listen(t, ServerConfig{Security: unit})
	ctx := testContext(t)
	c, s := establish(t, ln, host)
	_, helloErr := c.Hello(ctx, testHello())
	_, welcomeErr := s.Welcome(ctx, testWelcome())
	for i, err := range []error{helloErr, c.Accept(ctx, testAccept()), c.Ready(ctx), welcomeErr, s.Ready(ctx),
		s.Refuse(CodeBusy, "")} {
		if !errors.Is(err, ErrOrder) {
			t.Errorf("step %d after the handshake: %v", i, err)
		}
	}
	if c.Err() != nil || s.Err() != nil {
		t.Errorf("the session ended: %v, %v", c.Err(), s.Err())
	}
}

func TestListenerCloseKeepsSessions(t *testing.T) {
	host, unit := friends(t)
	ln, _ := listen(t, ServerConfig{Security: unit})
	c, s := establish(t, ln, host)
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := ln.Accept(testContext(t)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept: %v", err)
	}
	if err := c.Bye(CodeShuttingDown, "end"); err != nil {
		t.Error(err)
	}
	var bye *ByeError
	if err := waitDone(t, s.Conn); !errors.As(err, &bye) {
		t.Errorf("ended with %v", err)
	}
}

func TestOwnMistakesAreNotSent(t *testing.T) {
	host, unit := friends(t)
	ln, _ := listen(t, ServerConfig{Security: unit})
	ctx := testContext(t)

	c, err := dial(t, ln, host)
	if err != nil {
		t.Fatal(err)
	}
	hello := testHello()
	hello.Queues = 0
	if _, err := c.Hello(ctx, hello); !errors.Is(err, ErrMessage) {
		t.Errorf("hello: %v", err)
	}

	c, err = dial(t, ln, host)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if s, err := ln.Accept(ctx); err == nil {
			w := testWelcome()
			w.MTU = 9001
			if _, err := s.Welcome(ctx, w); !errors.Is(err, ErrMessage) {
				t.Errorf("welcome: %v", err)
			}
		}
	}()
	var bye *ByeError
	if _, err := c.Hello(ctx, testHello()); !errors.As(err, &bye) || bye.Code != CodeFailed {
		t.Errorf("hello: %v", err)
	}
}

func TestChannelIsAddress(t *testing.T) {
	want := fabric.Address{GID: [16]byte{1, 15: 2}, LID: 3, QPN: 4, PSN: 5, MTU: 4096}
	if got := Addresses(Channels([]fabric.Address{want}))[0]; got != want {
		t.Errorf("%+v became %+v", want, got)
	}
}

func TestWithPort(t *testing.T) {
	for addr, want := range map[string]string{
		"gw1":           "gw1:7580",
		"gw1:1":         "gw1:1",
		"10.0.0.1":      "10.0.0.1:7580",
		"fd00::1":       "[fd00::1]:7580",
		"[fd00::1]":     "[fd00::1]:7580",
		"[fd00::1]:99":  "[fd00::1]:99",
		"fe80::1%eth0":  "[fe80::1%eth0]:7580",
		"":              ":7580",
		":7":            ":7",
		"what:is:this?": "what:is:this?",
	} {
		if got := WithPort(addr); got != want {
			t.Errorf("%q: %q, want %q", addr, got, want)
		}
	}
}

// unread returns an established connection. The client has no reader: the test reads itself.
func unread(t *testing.T, peerTimeout time.Duration) (*Client, *Server) {
	host, unit := friends(t)
	ln, _ := listen(t, ServerConfig{Security: unit, PeerTimeout: peerTimeout})
	ctx := testContext(t)
	c, err := dial(t, ln, host)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if _, err := c.Hello(ctx, testHello()); err == nil {
			if err := c.Accept(ctx, testAccept()); err == nil {
				c.send(readyMessage{typeReady}) // and no reader
			}
		}
	}()
	s, err := ln.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := s.Welcome(ctx, testWelcome()); err != nil {
		t.Fatal(err)
	}
	if err := s.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	return c, s
}

func TestHeartbeats(t *testing.T) {
	c, s := unread(t, 400*time.Millisecond)
	for range 3 {
		if b, err := readFrame(c.tls); err != nil || len(b) != 0 {
			t.Fatalf("instead of a heartbeat: %q, %v", b, err)
		}
	}
	if s.Err() != nil {
		t.Error(s.Err())
	}
}

// TestVouch checks that no heartbeats are sent while the peer is heard by other means, except a
// few by a host. When the peer is not heard any more, a heartbeat must be sent at once.
func TestVouch(t *testing.T) {
	for part, some := range map[role]int{roleUnit: 0, roleHost: 2} {
		t.Run(part.String(), func(t *testing.T) { vouch(t, part, some) })
	}
}

// vouch tests an end that sends some heartbeats in two rounds of looks while the peer is vouched
// for.
func vouch(t *testing.T, part role, some int) {
	c, s := unread(t, 50*time.Hour)
	if part == roleHost {
		s.peerRole = roleUnit
	}
	number := uint64(unneeded - 3) // number of the last look
	looks := func(n int) {
		for range n {
			testenv.Eventually(t, func() bool { return !s.heartbeats.going.Load() }, "heartbeat is sent")
			number++
			s.look(ticker.Tick{N: number})
		}
	}
	arrive := func(want int) {
		t.Helper()
		for range want {
			if b, err := readFrame(c.tls); err != nil || len(b) != 0 {
				t.Fatalf("instead of a heartbeat: %q, %v", b, err)
			}
		}
	}
	looks(3)
	arrive(3)
	s.Vouch(true)
	looks(2*unneeded + 2)
	arrive(some)
	testenv.Eventually(t, func() bool { return !s.heartbeats.going.Load() }, "heartbeat is sent")
	s.Vouch(false)
	arrive(1)
	s.Vouch(false)
	looks(2)
	arrive(2)
	testenv.Eventually(t, func() bool { return !s.heartbeats.going.Load() }, "heartbeat is sent")
	if err := s.Bye(CodeShuttingDown, ""); err != nil {
		t.Fatal(err)
	}
	if b, err := readFrame(c.tls); err != nil || len(b) == 0 {
		t.Fatalf("instead of the bye: %q, %v", b, err)
	}
	s.Vouch(true)
	s.Vouch(false) // sends nothing any more, and does not wait
}

// deadlineConn records the deadline that was set last.
type deadlineConn struct {
	net.Conn
	mu   sync.Mutex
	last time.Time
}

func (c *deadlineConn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	c.last = t
	c.mu.Unlock()
	return c.Conn.SetDeadline(t)
}

func TestEstablishedSessionHasNoDeadline(t *testing.T) {
	host, unit := friends(t)
	ln, _ := listen(t, ServerConfig{Security: unit})
	var seen *deadlineConn
	c, err := Dial(testContext(t), ln.Addr().String(), ClientConfig{
		Security:         host,
		HandshakeTimeout: time.Minute,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := new(net.Dialer).DialContext(ctx, network, addr)
			seen = &deadlineConn{Conn: nc}
			return seen, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	complete(t, ln, c)
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if !seen.last.IsZero() {
		t.Errorf("the connection ends at %v", seen.last)
	}
}

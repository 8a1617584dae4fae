package session

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// testContext returns a context that ends a test that hangs. No test waits for its end.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	t.Cleanup(cancel)
	return ctx
}

// secured returns the Security of key that trusts the given entries.
func secured(t testing.TB, key *Key, trusted ...string) *Security {
	t.Helper()
	var trust Trust
	for _, entry := range trusted {
		if err := trust.Add(entry); err != nil {
			t.Fatal(err)
		}
	}
	s, err := NewSecurity(key, "", &trust)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func insecure(t testing.TB) *Security {
	t.Helper()
	s, err := Insecure()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// friends returns the Securities of a host and an I/O unit that trust each other under the names
// host1 and unit1.
func friends(t testing.TB) (host, unit *Security) {
	h, u := newKey(t), newKey(t)
	return secured(t, h, "unit1="+u.Fingerprint().String()), secured(t, u, "host1="+h.Fingerprint().String())
}

// rejections collects the errors of connections that a listener rejects.
type rejections chan error

func (r rejections) add(_ net.Addr, err error) { r <- err }

func (r rejections) next(t testing.TB) error {
	t.Helper()
	select {
	case err := <-r:
		return err
	case <-time.After(atOnce):
		t.Fatal("nothing was rejected")
		return nil
	}
}

// atOnce is the time limit for events that only a busy machine can delay.
const atOnce = testenv.Patience

// soon fails the test unless done is closed within atOnce.
func soon(t testing.TB, done <-chan struct{}, complaint string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(atOnce):
		t.Fatal(complaint)
	}
}

func listen(t testing.TB, cfg ServerConfig) (*Listener, rejections) {
	t.Helper()
	rejected := make(rejections, 100)
	cfg.Rejected = rejected.add
	if cfg.HandshakeTimeout == 0 {
		cfg.HandshakeTimeout = time.Minute
	}
	ln, err := Listen("127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ln.Close(); err != nil {
			t.Error(err)
		}
	})
	return ln, rejected
}

func dial(t testing.TB, ln *Listener, s *Security) (*Client, error) {
	t.Helper()
	c, err := Dial(testContext(t), ln.Addr().String(), ClientConfig{Security: s, HandshakeTimeout: time.Minute})
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

// knock dials, sends a hello, and returns the error of the step that failed. A host that gets
// through is refused.
func knock(t testing.TB, ln *Listener, s *Security) error {
	t.Helper()
	ctx, cancel := context.WithCancel(testContext(t))
	var accepting sync.WaitGroup
	accepting.Go(func() {
		if s, err := ln.Accept(ctx); err == nil {
			_ = s.Refuse(CodeFailed, "the test is over")
		}
	})
	defer accepting.Wait()
	defer cancel()
	return call(t, ln, s)
}

// call is knock for a listener on which the test accepts.
func call(t testing.TB, ln *Listener, s *Security) error {
	t.Helper()
	c, err := dial(t, ln, s)
	if err != nil {
		return err
	}
	_, err = c.Hello(testContext(t), testHello())
	return err
}

func testHello() Hello {
	return Hello{
		Features: []string{"early", "late", protocol.FeatureRenew},
		Name:     "node17.example",
		Software: "splitnic test",
		Modes:    []protocol.Mode{protocol.ModeImm, "later", protocol.ModeSend},
		Queues:   2,
		Pools:    2,
		MaxMTU:   9000,
		Offloads: vnet.CSUM | vnet.TSO4,
		MAC:      protocol.MAC{2, 0, 0, 0, 0, 1},
	}
}

func testChannels(first uint32, n int) []Channel {
	channels := make([]Channel, n)
	for i := range channels {
		channels[i] = Channel{QPN: first + uint32(i), PSN: 0xabcdef - uint32(i), GID: GID{0xfe, 0x80, 15: byte(i)}, LID: 7,
			MTU: 1024}
	}
	return channels
}

func testWelcome() Welcome {
	return Welcome{
		Features:        []string{"late", "later", protocol.FeatureRenew},
		Session:         "s-1",
		Name:            "gw1",
		Software:        "splitnic test",
		Mode:            protocol.ModeImm,
		Queues:          2,
		Pools:           3,
		MAC:             protocol.MAC{2, 0, 0, 0, 0, 1},
		MTU:             1500,
		Link:            Link{Up: true, SpeedMbps: 25000},
		Offloads:        vnet.TSO4 | vnet.TSO6,
		ControlReceives: protocol.ControlReceives(protocol.ModeImm, 2, 2),
		Channels:        testChannels(100, 3),
	}
}

func testAccept() Accept {
	return Accept{ControlReceives: protocol.ControlReceives(protocol.ModeImm, 2, 3), Channels: testChannels(200, 3)}
}

// establish runs a complete handshake and returns both ends.
func establish(t testing.TB, ln *Listener, host *Security) (*Client, *Server) {
	t.Helper()
	return establishWith(t, ln, ClientConfig{Security: host, HandshakeTimeout: time.Minute})
}

// establishWith is establish with a configuration of the host.
func establishWith(t testing.TB, ln *Listener, cfg ClientConfig) (*Client, *Server) {
	t.Helper()
	c, err := Dial(testContext(t), ln.Addr().String(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c, complete(t, ln, c)
}

// complete runs the handshake after Dial and returns the other end. Before Ready, it calls each
// of show with that end.
func complete(t testing.TB, ln *Listener, c *Client, show ...func(*Server)) *Server {
	t.Helper()
	ctx := testContext(t)
	t.Cleanup(func() { c.Close() })
	clientErr := make(chan error, 1)
	go func() {
		clientErr <- func() error {
			if _, err := c.Hello(ctx, testHello()); err != nil {
				return err
			}
			if err := c.Accept(ctx, testAccept()); err != nil {
				return err
			}
			return c.Ready(ctx)
		}()
	}()
	s, err := ln.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := s.Welcome(ctx, testWelcome()); err != nil {
		t.Fatal(err)
	}
	for _, f := range show {
		f(s)
	}
	if err := s.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-clientErr; err != nil {
		t.Fatal(err)
	}
	return s
}

func waitDone(t testing.TB, c *Conn) error {
	t.Helper()
	select {
	case <-c.Done():
		return c.Err()
	case <-time.After(atOnce):
		t.Fatalf("the connection with %v did not end", c)
		return nil
	}
}

func newKey(t testing.TB) *Key {
	t.Helper()
	key, err := GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/splitdrv/session"
)

var someSpec = Spec{Kind: BW, Mode: protocol.ModeImm, Size: 1500, Queues: 1, Iterations: 200, WarmUp: 20}

// endless is a measurement that does not end by itself during a test.
var endless = Spec{Kind: BW, Mode: protocol.ModeImm, Size: 64, Queues: 1, Duration: time.Hour}

// serving is a running Server.
type serving struct {
	secret Secret
	addr   string
	stop   context.CancelFunc
	err    error // error of Run; valid after done is closed
	done   chan struct{}

	failed chan string
	served chan Served
}

// serve starts a Server, which is stopped at the end of the test.
func serve(t *testing.T, d fabric.Device, change func(*ServerConfig)) *serving {
	t.Helper()
	s := &serving{secret: NewSecret(), done: make(chan struct{}), failed: make(chan string, 64),
		served: make(chan Served, 64)}
	security, err := s.secret.ServerSecurity()
	if err != nil {
		t.Fatal(err)
	}
	cfg := ServerConfig{
		Device: d, Security: security, Kind: BW, Messaging: patient, Name: "server", Software: "1.0",
		Prepare: func(Spec) {},
		Failed:  func(err error) { s.failed <- err.Error() },
		Served:  func(r Served) { s.served <- r },
	}
	if change != nil {
		change(&cfg)
	}
	ln, err := Listen("127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.addr = ln.Addr().String()
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	go func() {
		defer close(s.done)
		s.err = ln.Run(ctx)
		ln.Close()
	}()
	t.Cleanup(func() {
		stop()
		<-s.done
	})
	return s
}

// client makes a Client of the Server.
func (s *serving) client(t *testing.T, d fabric.Device, change func(*ClientConfig)) *Client {
	t.Helper()
	security, err := s.secret.ClientSecurity()
	if err != nil {
		t.Fatal(err)
	}
	cfg := ClientConfig{Device: d, Addr: s.addr, Security: security, Messaging: patient, Name: "client", Software: "1.0",
		OtherSoftware: func(string) {}}
	if change != nil {
		change(&cfg)
	}
	return NewClient(cfg)
}

// says waits until the Server reports a failure with these words.
func (s *serving) says(t *testing.T, words string) {
	t.Helper()
	late := time.After(testenv.Patience)
	for {
		select {
		case text := <-s.failed:
			if strings.Contains(text, words) {
				return
			}
		case <-late:
			t.Fatalf("the server does not say %q", words)
		}
	}
}

func TestTwoNodes(t *testing.T) {
	_, a, b := devices(t)
	for _, specs := range [][]Spec{
		{someSpec, {Kind: BW, Mode: protocol.ModeSend, Size: MaxSize, Queues: 2, Iterations: 100}},
		{{Kind: BW, Mode: protocol.ModeImm, Size: 9000, Queues: 2, Iterations: 200, Bidirectional: true, PostList: 8,
			TxDepth: 32}},
		{{Kind: PPS, Mode: protocol.ModeImm, Size: 64, Queues: 1, Duration: 50 * time.Millisecond, NoPack: true}},
		{{Kind: BW, Mode: protocol.ModeIndicate, Size: 65519, Queues: 2, Iterations: 100, Cipher: seal.AES256GCM}},
		{{Kind: Lat, Mode: protocol.ModeImm, Size: 64, Queues: 1, Iterations: 100, WarmUp: 10},
			{Kind: Lat, Mode: protocol.ModeIndicate, Size: 64, Queues: 1, Iterations: 50}},
	} {
		prepared := 0
		s := serve(t, b, func(c *ServerConfig) {
			c.Kind = specs[0].Kind
			c.Prepare = func(s Spec) {
				if s != specs[prepared] {
					t.Errorf("prepared for %+v, want %+v", s, specs[prepared])
				}
				prepared++
			}
		})
		c := s.client(t, a, nil)
		for i, spec := range specs {
			r, err := c.Measure(t.Context(), spec, i == len(specs)-1)
			if err != nil {
				t.Fatalf("%+v: %v", spec, err)
			}
			check(t, spec, r)
			if r.Form != "two-node" || r.Device != "a" || !r.Bound {
				t.Errorf("%+v", r)
			}
		}
		<-s.done
		if s.err != nil || len(s.served) != len(specs) || len(s.failed) != 0 {
			t.Fatalf("the server: %v; served %d, failed %d", s.err, len(s.served), len(s.failed))
		}
		for i := range specs {
			r := <-s.served
			if r.Spec != specs[i] || r.Messages == 0 || r.Peer == nil || (r.Time > 0) != (specs[i].Kind != Lat) {
				t.Errorf("%+v", r)
			}
		}
	}
}

// TestForever serves one run after another, also after a run that fails.
func TestForever(t *testing.T) {
	_, a, b := devices(t)
	s := serve(t, b, func(c *ServerConfig) { c.Forever = true })
	ctx, cancel := context.WithCancel(t.Context())
	interrupted := s.client(t, a, func(c *ClientConfig) { c.Watch = func(Progress) { cancel() } })
	if _, err := interrupted.Measure(ctx, endless, true); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	for range 2 {
		if _, err := s.client(t, a, nil).Measure(t.Context(), someSpec, true); err != nil {
			t.Fatal(err)
		}
	}
	s.says(t, "gave up: it was interrupted")
	<-s.served
	<-s.served
	s.stop()
	if <-s.done; !errors.Is(s.err, context.Canceled) {
		t.Error(s.err)
	}
}

// refused runs a measurement that fails. It expects a documented PeerError with words at the
// client, and the words server at the server.
func (s *serving) refused(t *testing.T, c *Client, spec Spec, words, server string) {
	t.Helper()
	_, err := c.Measure(t.Context(), spec, true)
	var peer *PeerError
	if !errors.As(err, &peer) || !strings.Contains(err.Error(), words) {
		t.Errorf("%v, want a PeerError with %q", err, words)
		return
	}
	testenv.Explained(t, err.Error())
	if server != "" {
		s.says(t, server)
	}
}

func TestRefusals(t *testing.T) {
	_, a, b := devices(t)
	s := serve(t, b, func(c *ServerConfig) { c.Modes = []protocol.Mode{protocol.ModeImm, protocol.ModeSend} })

	other := &serving{secret: NewSecret(), addr: s.addr}
	s.refused(t, other.client(t, a, nil), someSpec, "another secret", "another secret")
	if _, err := other.client(t, a, nil).Measure(t.Context(), someSpec, true); !errors.As(err,
		new(*session.UntrustedError)) {
		t.Errorf("the cause is lost: %v", err)
	}
	lat := Spec{Kind: Lat, Mode: protocol.ModeImm, Size: 64, Queues: 1, Iterations: 1}
	s.refused(t, s.client(t, a, nil), lat, "it serves `splitnic bench bw`, not lat", "not lat")
	spec := someSpec
	spec.Mode = protocol.ModeIndicate
	s.refused(t, s.client(t, a, nil), spec, "--mode imm,send only", "--mode imm,send only")

	// The parameters have none, or a later version, or an unknown name.
	hello := func(features ...string) error {
		t.Helper()
		security, err := s.secret.ClientSecurity()
		if err != nil {
			t.Fatal(err)
		}
		c, err := session.Dial(t.Context(), s.addr, session.ClientConfig{Security: security})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = c.Hello(t.Context(), session.Hello{
			Features: features, Name: "x", Software: "9.9", Modes: []protocol.Mode{protocol.ModeImm},
			Queues: 1, Pools: 4, MaxMTU: 1500,
		})
		return err
	}
	for _, features := range [][]string{{}, {"bench.version.1", "bench.run.0011223344556677"},
		append(someSpec.encode("0011223344556677"), "bench.colour.red")} {
		if err := hello(features...); err == nil || !strings.Contains(err.Error(), "use the same version of splitnic") ||
			!strings.Contains(err.Error(), "9.9") {
			t.Errorf("%q: %v", features, err)
		}
	}
	// None of the rejected requests was a run: the server still serves its only one.
	said := make(chan string, 1)
	c := s.client(t, a, func(c *ClientConfig) {
		c.Software = "0.9"
		c.OtherSoftware = func(version string) { said <- version }
	})
	if _, err := c.Measure(t.Context(), someSpec, true); err != nil {
		t.Fatal(err)
	}
	if version := <-said; version != "1.0" {
		t.Errorf("the server's version is %q", version)
	}
	<-s.done
	if s.err != nil {
		t.Error(s.err)
	}
	_, err := s.client(t, a, nil).Measure(t.Context(), someSpec, true)
	if err == nil || !strings.Contains(err.Error(), "does not listen") {
		t.Fatalf("nobody listens: %v", err)
	}
	testenv.Explained(t, err.Error())
}

// TestBusy has a second client connect while the server serves another one, and while the server
// waits for the next run of that one. It expects the second client to be rejected.
func TestBusy(t *testing.T) {
	_, a, b := devices(t)
	s := serve(t, b, nil)
	busy := func() {
		s.refused(t, s.client(t, b, nil), someSpec, "busy with another run", "busy with another run")
	}
	first := s.client(t, a, func(c *ClientConfig) { c.Watch = func(Progress) { busy() } })
	spec := someSpec
	spec.Iterations, spec.Duration = 0, 2*time.Second
	if _, err := first.Measure(t.Context(), spec, false); err != nil {
		t.Fatal(err)
	}
	busy()
	if _, err := first.Measure(t.Context(), someSpec, true); err != nil {
		t.Fatal(err)
	}
	if <-s.done; s.err != nil {
		t.Error(s.err)
	}
}

// TestServerGoes stops the server, or its device, in the middle of a measurement.
func TestServerGoes(t *testing.T) {
	n, a, _ := devices(t)
	for name, goes := range map[string]func(s *serving){
		"gave up: it was interrupted": func(s *serving) { s.stop() },
		"gave up: bw after":           func(*serving) { n.Kill("b") },
	} {
		b := n.Device("b")
		defer b.Close()
		s := serve(t, b, nil)
		c := s.client(t, a, func(c *ClientConfig) { c.Watch = func(Progress) { goes(s) } })
		s.refused(t, c, endless, name, "")
		if <-s.done; s.err == nil {
			t.Errorf("%s: the server does not say why it ended", name)
		}
	}
}

// TestClientGoes stops the client's device in the middle of a measurement.
func TestClientGoes(t *testing.T) {
	n, a, b := devices(t)
	s := serve(t, b, nil)
	c := s.client(t, a, func(c *ClientConfig) { c.Watch = func(Progress) { n.Kill("a") } })
	if _, err := c.Measure(t.Context(), endless, true); err == nil || !strings.Contains(err.Error(), "bw after") {
		t.Errorf("the client: %v", err)
	}
	if <-s.done; s.err == nil || !strings.Contains(s.err.Error(), "bw after") {
		t.Errorf("the server: %v", s.err)
	}
}

// TestNotBench connects to programs that are no bench server.
func TestNotBench(t *testing.T) {
	_, a, _ := devices(t)
	secret := NewSecret()
	listen := func() net.Listener {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return ln
	}
	measure := func(addr, words string) {
		t.Helper()
		s := &serving{secret: secret, addr: addr}
		s.refused(t, s.client(t, a, nil), someSpec, words, "")
	}
	for answer, words := range map[string]string{"HTTP/1.1 400 Bad Request\r\n": "is no `splitnic bench --listen`",
		"": "is gone"} {
		ln := listen()
		var server sync.WaitGroup
		server.Go(func() {
			if c, err := ln.Accept(); err == nil {
				fmt.Fprint(c, answer)
				c.Read(make([]byte, 1))
				c.Close()
			}
		})
		measure(ln.Addr().String(), words)
		ln.Close()
		server.Wait()
	}
	// An I/O unit with the same key listens.
	security, err := secret.ServerSecurity()
	if err != nil {
		t.Fatal(err)
	}
	unit, err := session.NewListener(listen(), session.ServerConfig{Security: security})
	if err != nil {
		t.Fatal(err)
	}
	var server sync.WaitGroup
	server.Go(func() {
		s, err := unit.Accept(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		defer s.Close()
		_, err = s.Welcome(t.Context(), session.Welcome{
			Name: "unit", Mode: protocol.ModeImm, Queues: 1, Pools: 4, MAC: nobody, MTU: 1500,
			ControlReceives: protocol.ControlReceives(protocol.ModeImm, 1, s.Hello().Pools),
			Channels:        []session.Channel{{QPN: 17, MTU: 1024}, {QPN: 18, MTU: 1024}},
		})
		if err == nil {
			t.Error("the client goes on")
		}
	})
	measure(unit.Addr().String(), "is no `splitnic bench --listen`")
	server.Wait()
	unit.Close()
}

// TestUnreachable connects to an address that does not exist.
func TestUnreachable(t *testing.T) {
	_, a, _ := devices(t)
	s := &serving{secret: NewSecret(), addr: "no such node:1"}
	s.refused(t, s.client(t, a, nil), someSpec, "cannot be reached", "")
}

func TestWithPort(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.1": "10.0.0.1:7590", "10.0.0.1:1": "10.0.0.1:1", "fe80::1": "[fe80::1]:7590", "[::1]": "[::1]:7590",
		"node": "node:7590", ":5": ":5", "": ":7590", "a:b:c": "a:b:c",
	} {
		if got := WithPort(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

//go:build cgo

package attacks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/protocol"
)

// impatient is a handshake-timeout that an honest host's handshake meets even on a busy emulated
// machine.
const impatient = 10 * time.Second

// closed waits until the I/O unit has closed a connection.
func closed(nc net.Conn) error {
	nc.SetReadDeadline(time.Now().Add(patience))
	buf := make([]byte, 4096)
	for {
		if _, err := nc.Read(buf); errors.Is(err, os.ErrDeadlineExceeded) {
			return errors.New("the connection is still open")
		} else if err != nil {
			return nil
		}
	}
}

// TestRDMAAttackHandshake attacks the handshake, with and without a trusted key.
func TestRDMAAttackHandshake(t *testing.T) {
	r := newFixture(t, "--advanced.handshake-timeout", impatient.String())
	to := r.attacker()
	r.sub("stalled at each stage", func(t *testing.T) { r.stalls(t, to) })
	r.sub("byte by byte", func(t *testing.T) { r.slow(t, to) })
	r.sub("broken TLS", func(t *testing.T) { r.brokenTLS(t, to) })
	r.sub("a thousand connections", func(t *testing.T) { r.thousand(t, to) })
}

// stalls opens connections that stop at each stage of the handshake, all at the same time, and
// expects that the I/O unit ends them.
func (r *fixture) stalls(t *testing.T, to Target) {
	late := r.since(refused("late"))
	for stage := range Stages {
		nc, err := Stall(t.Context(), to, fmt.Sprintf("stall-%d", stage), stage)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		defer func() {
			if err := closed(nc); err != nil {
				t.Errorf("stopped %v: %v", stage, err)
			}
		}()
	}
	r.bystander.goesOn()
	r.eventually(func() bool { return late() == uint64(Stages) }, "%d counted as late", Stages)
	if s := r.status(); s.Bootstrap.Handshaking != 0 || len(s.Hosts) != 1 {
		t.Errorf("%+v", s)
	}
	r.unharmed()
}

// slow sends handshakes byte by byte, and expects that the I/O unit ends them as late.
func (r *fixture) slow(t *testing.T, to Target) {
	late := r.since(refused("late"))
	var drips sync.WaitGroup
	for _, stage := range []Stage{AfterTCP, AfterTLS} {
		drips.Go(func() {
			// Each stage has more than forty bytes to send.
			if err := Drip(t.Context(), to, stage, impatient/40); err != nil {
				t.Errorf("byte by byte %v: %v", stage, err)
			}
		})
	}
	drips.Wait()
	r.eventually(func() bool { return late() == 2 }, "two counted as late")
	r.unharmed()
}

// brokenTLS truncates the ClientHello at many places, and sends other bytes instead of it.
func (r *fixture) brokenTLS(t *testing.T, to Target) {
	counted := r.since(func(s status) (n uint64) {
		for _, m := range s.Refusals {
			n += m
		}
		return n
	})
	good, err := ClientHello(t.Context(), to.Key)
	if err != nil {
		t.Fatal(err)
	}
	giant := bytes.Repeat([]byte{22, 3, 1, 0x40, 0}, 1) // a record of 16 KiB
	giant = append(giant, 1, 0xff, 0xff, 0xff)          // with a ClientHello of 16 MiB
	giant = append(giant, make([]byte, 1<<14-4)...)
	type attempt struct {
		name  string
		bytes []byte
	}
	attempts := []attempt{
		{"giant ClientHello", bytes.Repeat(giant, 8)},
		{"record over the limit", append([]byte{22, 3, 1, 0xff, 0xff}, make([]byte, 1<<16)...)},
		{"another record first", []byte{23, 3, 3, 0, 1, 0}},
		{"no TLS", bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 5000)},
		{"zeros", make([]byte, 1<<17)},
	}
	for n := 1; n < len(good); n += len(good)/7 + 1 {
		attempts = append(attempts, attempt{fmt.Sprintf("%d bytes of a ClientHello", n), good[:n]})
	}
	var tried []net.Conn
	for _, a := range attempts { // fewer than one address may have
		nc, err := Dial(t.Context(), to.Address, to.From)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		_, _ = nc.Write(a.bytes) // the I/O unit may close the connection during the write
		_ = nc.(*net.TCPConn).CloseWrite()
		tried = append(tried, nc)
	}
	for i, nc := range tried {
		if err := closed(nc); err != nil {
			t.Errorf("%s: %v", attempts[i].name, err)
		}
	}
	r.eventually(func() bool { return counted() == uint64(len(attempts)) }, "%d refused", len(attempts))
	r.unharmed()
}

// thousand opens a thousand connections without sending anything, and expects that a host with
// another address gets a session.
func (r *fixture) thousand(t *testing.T, to Target) {
	dropped, others := r.since(refused("too-many-handshakes-address")), r.since(refused("too-many-handshakes"))
	late := r.since(refused("late"))
	const n = 1000
	for range n {
		nc, err := Dial(t.Context(), to.Address, to.From)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
	}
	honest := to
	honest.From = ""
	s, err := Open(t.Context(), honest, "newcomer", protocol.ModeImm)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	r.eventually(func() bool { return dropped()+late() == n }, "%d refused", n)
	if m := dropped(); m < n/2 {
		t.Errorf("%d connections were dropped because there were others of that address", m)
	}
	if m := others(); m != 0 {
		t.Errorf("%d connections were dropped for the sake of other addresses", m)
	}
	r.unharmed()
}

// TestRDMAAttackSessions lets a host misuse its sessions.
func TestRDMAAttackSessions(t *testing.T) {
	r := newFixture(t)
	to := r.attacker()
	r.sub("more than allowed", func(t *testing.T) { r.many(t, to) })
	r.sub("deaf", func(t *testing.T) { r.deaf(t, to) })
	r.sub("heartbeats", func(t *testing.T) { r.heartbeats(t, to) })
	r.sub("asked for and dropped", func(t *testing.T) { r.askAndDrop(t, to) })
}

// askAndDrop requests sessions as fast as possible while the attacker has as many as its key may
// have: such requests are answered faster than the kernel can set up sessions under emulation. No
// more requests may be answered than a key may make in this time, and the existing sessions have to
// go on.
func (r *fixture) askAndDrop(t *testing.T, to Target) {
	var has []*Session
	for i := range 3 { // besides the honest host's
		s, err := openInTime(t.Context(), to, fmt.Sprintf("has-%d", i), busy)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		has = append(has, s)
	}
	refused := r.since(refused("too-often"))
	class, _ := ClassOf("hellos")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var done atomic.Uint64
	result := make(chan error, 1)
	began := time.Now()
	go func() { result <- class.Run(ctx, to, &done) }()
	r.eventually(func() bool { return refused() >= 30 || len(result) > 0 },
		"refusals of sessions that are opened too often")
	r.bystander.goesOn()
	cancel()
	if err := <-result; err != nil {
		t.Error(err)
	}
	if n, most := done.Load(), 16+uint64(4*time.Since(began).Seconds()); n > most {
		t.Errorf("%d hosts got as far as to an answer, at most %d", n, most)
	}
	for _, s := range has {
		if err := errors.Join(s.Alive(t.Context()), s.Close()); err != nil {
			t.Error(err)
		}
	}
	r.unharmed()
}

// many opens as many sessions as one key may have, and tries to open more.
func (r *fixture) many(t *testing.T, to Target) {
	counted := r.since(refused("full"))
	const allowed, tries = 3, 30 // besides the honest host's, which has the same key
	refused := 0
	var sessions []*Session
	for i := range tries {
		s, err := openInTime(t.Context(), to, fmt.Sprintf("many-%d", i), busy)
		var no *Refusal
		switch {
		case err == nil:
			sessions = append(sessions, s)
			defer s.Close()
		case errors.As(err, &no) && no.Type == "refuse" && no.Code == "full":
			refused++
		default:
			t.Fatal(err)
		}
	}
	if len(sessions) != allowed || refused != tries-allowed || counted() != uint64(refused) {
		t.Errorf("%d sessions, %d refused, counted as %d", len(sessions), refused, counted())
	}
	for _, s := range sessions {
		if err := s.Alive(t.Context()); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	r.unharmed()
}

// deaf never reads the bootstrap connections of its sessions, and expects that the I/O unit ends
// these without waiting for it.
func (r *fixture) deaf(t *testing.T, to Target) {
	replaced := r.since(ended("replaced"))
	var last *Session
	for range 3 { // each session replaces the one before
		s, err := openInTime(t.Context(), to, "deaf", busy)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.TCP.(*net.TCPConn).SetReadBuffer(1); err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		last = s
	}
	r.eventually(func() bool { return replaced() == 2 }, "two sessions replaced")
	if err := last.Close(); err != nil {
		t.Error(err)
	}
	r.unharmed()
}

// heartbeats sends heartbeats faster than the I/O unit reads them, and expects that the rest waits
// at the attacker.
func (r *fixture) heartbeats(t *testing.T, to Target) {
	s, err := openInTime(t.Context(), to, "attacker", busy)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	stop := context.AfterFunc(t.Context(), func() { s.TCP.Close() })
	defer stop()
	for range 30 {
		if _, err := s.Connection.Write(make([]byte, 4*heartbeatsInOne)); err != nil {
			t.Fatal(err)
		}
	}
	r.eventually(func() bool {
		for _, h := range r.status().Hosts {
			if h.Name == "attacker" {
				return h.HeartbeatsThrottled > 0
			}
		}
		return false
	}, "heartbeats counted that are left waiting")
	if err := s.Alive(t.Context()); err != nil {
		t.Errorf("the attacker's own session: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	r.unharmed()
}

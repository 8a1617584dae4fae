package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
)

// streaming is a TCP connection from a host to the LAN that both ends use all
// the time: each sends what the other one can foretell, and checks it.
type streaming struct {
	ends [2]*streamEnd // the host's, the LAN's
	stop chan struct{}
}

// streamEnd is one end of it.
type streamEnd struct {
	c        *net.TCPConn
	sent     atomic.Int64
	received atomic.Int64
	errs     chan error // of the sender and of the receiver
}

const (
	// streamPause, between two chunks, keeps the streams from taking all of a slow
	// machine.
	streamPause = 10 * time.Millisecond
	streamChunk = 8 << 10
)

// startStreaming opens the connection, from a network namespace to that of the
// LAN's server. Each end waits for pause between two chunks.
func startStreaming(t testing.TB, lan, ns string, pause time.Duration) *streaming {
	t.Helper()
	return startStreamingTo(t, lan, addr(0), ns, pause)
}

// startStreamingTo is startStreaming to an address in another namespace.
func startStreamingTo(t testing.TB, server, at, ns string, pause time.Duration) *streaming {
	t.Helper()
	l := testenv.ListenTCP(t, server, at)
	accepted := make(chan *net.TCPConn, 1)
	go func() {
		defer close(accepted)
		if c, err := l.AcceptTCP(); err == nil {
			accepted <- c
		}
	}()
	c, err := dialTCP(ns, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	other, ok := <-accepted
	if !ok {
		t.Fatal("the connection was not accepted")
	}
	t.Cleanup(func() { other.Close() })
	s := &streaming{stop: make(chan struct{})}
	for i, c := range []*net.TCPConn{c, other} {
		if err := c.SetDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		s.ends[i] = &streamEnd{c: c, errs: make(chan error, 2)}
	}
	for i, e := range s.ends {
		go func() { e.errs <- e.send(byte(i), pause, s.stop) }()
		go func() { e.errs <- e.receive(byte(1 - i)) }()
	}
	return s
}

// send sends until stop is closed, and then the end.
func (e *streamEnd) send(seed byte, pause time.Duration, stop <-chan struct{}) error {
	random := rand.NewChaCha8([32]byte{seed})
	b := make([]byte, streamChunk)
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return e.c.CloseWrite()
		case <-tick.C:
		}
		_, _ = random.Read(b) // never fails
		n, err := e.c.Write(b)
		e.sent.Add(int64(n))
		if err != nil {
			return err
		}
	}
}

// receive checks what comes, until the end.
func (e *streamEnd) receive(seed byte) error {
	random := rand.NewChaCha8([32]byte{seed})
	b, want := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err := e.c.Read(b)
		_, _ = random.Read(want[:n]) // never fails
		if !bytes.Equal(b[:n], want[:n]) {
			return fmt.Errorf("between bytes %d and %d is something else than was sent", e.received.Load(),
				e.received.Load()+int64(n))
		}
		e.received.Add(int64(n))
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// proceeds waits until either end has received more.
func (s *streaming) proceeds(t testing.TB) {
	t.Helper()
	for i, e := range s.ends {
		from := e.received.Load()
		eventually(t, func() bool {
			s.intact(t)
			return e.received.Load() > from+4*streamChunk
		}, "the TCP connection going on; end %d has got %d bytes", i, e.received.Load())
	}
}

// intact fails the test if the connection is broken.
func (s *streaming) intact(t testing.TB) {
	t.Helper()
	for i, e := range s.ends {
		select {
		case err := <-e.errs:
			t.Fatalf("the TCP connection broke; end %d: %v", i, err)
		default:
		}
	}
}

// finish ends both streams, checks that each has arrived in full, and returns
// how much that was.
func (s *streaming) finish(t testing.TB) (bytes int64) {
	t.Helper()
	close(s.stop)
	for i, e := range s.ends {
		if err := errors.Join(<-e.errs, <-e.errs); err != nil {
			t.Errorf("the TCP connection broke; end %d: %v", i, err)
		}
	}
	for i, e := range s.ends {
		if sent, got := s.ends[1-i].sent.Load(), e.received.Load(); sent != got {
			t.Errorf("end %d has got %d bytes of %d", i, got, sent)
		}
		bytes += e.received.Load()
	}
	return bytes
}

// prober asks the LAN for an answer all the time.
type prober struct {
	conn *net.UDPConn
	stop chan struct{}
	done chan struct{}
	last atomic.Int64 // when the last answer came, in ns
	gap  atomic.Int64 // the longest time between two answers, in ns, since it was reset
}

// probePause is the time between two questions.
const probePause = 5 * time.Millisecond

// startProber starts one, which ends with the test.
func startProber(t testing.TB, r *fixture, h *node) *prober {
	t.Helper()
	at := netip.AddrPortFrom(netip.MustParseAddr(addr(0)), 0)
	var server, client *net.UDPConn
	err := netns.Do(r.lan, func() (err error) {
		server, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		return err
	})
	if err == nil {
		err = netns.Do(h.ns, func() (err error) {
			client, err = net.DialUDP("udp", nil, server.LocalAddr().(*net.UDPAddr))
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	p := &prober{conn: client, stop: make(chan struct{}), done: make(chan struct{})}
	p.last.Store(time.Now().UnixNano())
	go func() {
		b := make([]byte, 64)
		for {
			n, from, err := server.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = server.WriteToUDPAddrPort(b[:n], from) // a question may stay without an answer
		}
	}()
	go p.listen()
	go p.ask()
	t.Cleanup(func() {
		close(p.stop)
		<-p.done
		client.Close()
		server.Close()
	})
	return p
}

// ask asks until the prober is stopped.
func (p *prober) ask() {
	defer close(p.done)
	tick := time.NewTicker(probePause)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
			_, _ = p.conn.Write([]byte("?")) // without a carrier nothing can be sent
		}
	}
}

// listen notes the answers.
func (p *prober) listen() {
	b := make([]byte, 64)
	for {
		if _, err := p.conn.Read(b); errors.Is(err, net.ErrClosed) {
			return
		} else if err != nil {
			continue
		}
		now := time.Now().UnixNano()
		p.gap.Store(max(p.gap.Load(), now-p.last.Swap(now)))
	}
}

// reset begins a new measurement.
func (p *prober) reset() { p.gap.Store(0) }

// answered waits for an answer, and returns the longest time without one since
// the last reset.
func (p *prober) answered(t testing.TB) time.Duration {
	t.Helper()
	from := p.last.Load()
	eventually(t, func() bool { return p.last.Load() > from }, "an answer from the LAN")
	return time.Duration(p.gap.Load())
}

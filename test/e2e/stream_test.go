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

// streaming is a TCP connection from a host to the LAN that both ends use all the time: each sends
// a pseudo-random sequence that the other end knows and checks.
type streaming struct {
	ends [2]*streamEnd // the host's end and the LAN's
	stop chan struct{}
}

// streamEnd is one end of a streaming.
type streamEnd struct {
	c        *net.TCPConn
	sent     atomic.Int64
	received atomic.Int64
	errs     chan error // results of the sender and of the receiver
}

const (
	// streamPause is the time between two chunks. It keeps the streams from using all processor time
	// of a slow machine.
	streamPause = 10 * time.Millisecond
	streamChunk = 8 << 10
)

// startStreaming opens the connection, from network namespace ns to the LAN's server in network
// namespace lan. Each end sends a chunk every pause.
func startStreaming(t testing.TB, lan, ns string, pause time.Duration) *streaming {
	t.Helper()
	return startStreamingTo(t, lan, addr(0), ns, pause)
}

// startStreamingTo is startStreaming to address at in network namespace server.
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

// send sends chunks until stop is closed, and then closes its direction of the connection.
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

// receive checks the received data until the end of the stream.
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

// proceeds waits until both ends have received more data.
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

// finish ends both streams, checks that each has arrived in full, and returns the number of bytes
// received at both ends.
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

// prober sends datagrams to an echo server on the LAN all the time.
type prober struct {
	conn *net.UDPConn
	stop chan struct{}
	done chan struct{}
	last atomic.Int64 // time of the last answer, in ns since the epoch
	gap  atomic.Int64 // the longest time between two answers since the last reset, in ns
}

// probePause is the time between two datagrams.
const probePause = 5 * time.Millisecond

// startProber starts a prober, which ends with the test.
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
			_, _ = server.WriteToUDPAddrPort(b[:n], from) // a missing answer is measured by the prober
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

// ask sends datagrams until the prober is stopped.
func (p *prober) ask() {
	defer close(p.done)
	tick := time.NewTicker(probePause)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
			_, _ = p.conn.Write([]byte("?")) // fails while there is no carrier
		}
	}
}

// listen receives the answers and updates last and gap.
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

// answered waits for an answer, and returns the longest time without an answer since the last reset.
func (p *prober) answered(t testing.TB) time.Duration {
	t.Helper()
	from := p.last.Load()
	eventually(t, func() bool { return p.last.Load() > from }, "an answer from the LAN")
	return time.Duration(p.gap.Load())
}

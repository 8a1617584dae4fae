package faults

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/internal/netns"
)

// stream is one end of a TCP connection. Both ends write bytes that the other end knows beforehand,
// and compare the bytes that they read, until the end that opened the connection is told to finish.
type stream struct {
	conn           chan *net.TCPConn // capacity 1; has the connection once it exists
	sent, received atomic.Int64
	finish         chan struct{}
	finishing      sync.Once
	done           chan struct{}
	err            error // valid after done is closed
}

// The seeds of the bytes that the opening and the accepting end write.
const (
	seedOpened   = 1
	seedAccepted = 2
)

func newStream() *stream {
	return &stream{conn: make(chan *net.TCPConn, 1), finish: make(chan struct{}), done: make(chan struct{})}
}

// source returns a reader with the endless bytes of one direction.
func source(seed byte) io.Reader { return rand.NewChaCha8([32]byte{seed}) }

// run uses c until both directions have ended. rate is in bytes a second; 0 is no limit.
func (s *stream) run(c *net.TCPConn, mine, theirs byte, rate int) {
	defer close(s.done)
	defer c.Close()
	s.conn <- c
	written := make(chan error, 1)
	go func() { written <- s.write(c, source(mine), rate) }()
	err := s.read(c, source(theirs))
	if err != nil {
		c.Close() // so that the writer ends
	}
	s.end()
	s.err = errors.Join(err, <-written)
}

// end makes the writer end after its current write.
func (s *stream) end() { s.finishing.Do(func() { close(s.finish) }) }

func (s *stream) write(c *net.TCPConn, src io.Reader, rate int) error {
	b := make([]byte, 32<<10)
	var tick <-chan time.Time
	if rate > 0 {
		t := time.NewTicker(time.Duration(len(b)) * time.Second / time.Duration(rate))
		defer t.Stop()
		tick = t.C
	}
	for {
		_, _ = src.Read(b) // a generator has no error
		n, err := c.Write(b)
		s.sent.Add(int64(n))
		if err != nil {
			return fmt.Errorf("after %d bytes written: %w", s.sent.Load(), err)
		}
		if tick == nil {
			select {
			case <-s.finish:
				return c.CloseWrite()
			default:
				continue
			}
		}
		select {
		case <-s.finish:
			return c.CloseWrite()
		case <-tick:
		}
	}
}

// read compares the bytes from r with those of want, until the end of r.
func (s *stream) read(r io.Reader, want io.Reader) error {
	b, w := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err := r.Read(b)
		_, _ = want.Read(w[:n])
		if !bytes.Equal(b[:n], w[:n]) {
			return fmt.Errorf("what arrived after %d bytes is not what was sent", s.received.Load())
		}
		s.received.Add(int64(n))
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("after %d bytes read: %w", s.received.Load(), err)
		}
	}
}

// flows has the connections and sequences of an agent, by number.
type flows struct {
	mu        sync.Mutex
	streams   []*stream
	sequences []*sequence
}

func (f *flows) add(s *stream) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams = append(f.streams, s)
	return len(f.streams) - 1
}

func (f *flows) stream(id int) (*stream, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if id < 0 || id >= len(f.streams) {
		return nil, fmt.Errorf("no connection has the number %d", id)
	}
	return f.streams[id], nil
}

// Flow has the address to listen on or to connect to.
type Flow struct {
	NS, Addr string // Addr includes a port; with 0, the kernel chooses the port to listen on
	Rate     int    // bytes or datagrams a second; 0 is no limit
}

// Flowing is a connection or sequence that was started.
type Flowing struct {
	ID   int
	Addr string // listening address
}

// Accept listens for one connection, and runs its stream at the rate of the flow.
func (a *agent) Accept(f Flow, r *Flowing) error {
	var l *net.TCPListener
	err := netns.Do(f.NS, func() error {
		nl, err := net.Listen("tcp", f.Addr)
		if err == nil {
			l = nl.(*net.TCPListener)
		}
		return err
	})
	if err != nil {
		return err
	}
	s := newStream()
	go func() {
		defer l.Close()
		l.SetDeadline(time.Now().Add(patience))
		c, err := l.AcceptTCP()
		if err != nil {
			s.err = err
			close(s.done)
			return
		}
		s.run(c, seedAccepted, seedOpened, f.Rate)
	}()
	r.ID, r.Addr = a.flows.add(s), l.Addr().String()
	return nil
}

// Open opens a stream and returns when it is connected.
func (a *agent) Open(f Flow, r *Flowing) error {
	var c net.Conn
	err := netns.Do(f.NS, func() (err error) {
		c, err = net.DialTimeout("tcp", f.Addr, patience)
		return err
	})
	if err != nil {
		return err
	}
	s := newStream()
	go s.run(c.(*net.TCPConn), seedOpened, seedAccepted, f.Rate)
	r.ID = a.flows.add(s)
	return nil
}

// Ends has the progress of one end of a stream.
type Ends struct {
	Sent, Received int64
	Ended          bool
	Error          string // valid when the stream has ended
}

// Progress returns the progress of a stream.
func (a *agent) Progress(id int, e *Ends) error {
	s, err := a.flows.stream(id)
	if err != nil {
		return err
	}
	e.Sent, e.Received, e.Ended = s.sent.Load(), s.received.Load(), ended(s.done, 0)
	if e.Ended && s.err != nil {
		e.Error = s.err.Error()
	}
	return nil
}

// Finish ends the writing of a stream, waits for the end of the stream, and returns its progress.
func (a *agent) Finish(id int, e *Ends) error {
	s, err := a.flows.stream(id)
	if err != nil {
		return err
	}
	s.end()
	ended(s.done, patience)
	return a.Progress(id, e)
}

// Abort ends a stream in any state. A connection that exists is reset.
func (a *agent) Abort(id int, _ *struct{}) error {
	s, err := a.flows.stream(id)
	if err != nil {
		return err
	}
	s.end()
	select {
	case c := <-s.conn:
		c.SetLinger(0)
		c.Close()
	case <-s.done:
	default:
	}
	return nil
}

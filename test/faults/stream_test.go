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

// A stream is one end of a TCP connection on which both ends write bytes that
// the other end knows beforehand, and compare what they read, until the end that
// opened it is told to finish.
type stream struct {
	conn           chan *net.TCPConn // of capacity one: the connection, once there is one
	sent, received atomic.Int64
	finish         chan struct{}
	finishing      sync.Once
	done           chan struct{}
	err            error // valid after done
}

// Streams of either direction are made from these seeds.
const (
	seedOpened   = 1
	seedAccepted = 2
)

func newStream() *stream {
	return &stream{conn: make(chan *net.TCPConn, 1), finish: make(chan struct{}), done: make(chan struct{})}
}

// source returns the endless bytes of one direction.
func source(seed byte) io.Reader { return rand.NewChaCha8([32]byte{seed}) }

// run uses c until both directions have ended. rate is in bytes a second, 0 for
// as many as there can be.
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

// end has the writer end after what it is writing.
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

// read compares what comes with want, until the end.
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

// flows are the connections and sequences of an agent, by number.
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

// Flow is where to listen or what to connect to.
type Flow struct {
	NS, Addr string // the address has a port; 0 to listen at any
	Rate     int    // bytes, or datagrams, a second; 0: no limit
}

// Flowing is a connection or sequence that has begun.
type Flowing struct {
	ID   int
	Addr string // that is listened at
}

// Accept listens for one stream, which takes the pace that the flow says.
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

// Ends is how far one end of a stream has got.
type Ends struct {
	Sent, Received int64
	Ended          bool
	Error          string // when it has ended
}

// Progress tells how far a stream has got.
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

// Finish has a stream end and waits for that.
func (a *agent) Finish(id int, e *Ends) error {
	s, err := a.flows.stream(id)
	if err != nil {
		return err
	}
	s.end()
	ended(s.done, patience)
	return a.Progress(id, e)
}

// Abort ends a stream whatever has become of it.
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

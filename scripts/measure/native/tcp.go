package native

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/splitnic/splitnic/internal/netns"
)

// traffic is a flow of bytes or frames that goes on until it is stopped.
type traffic interface {
	count() uint64 // bytes or frames received
	stop() error
}

const (
	// chunk is how many bytes the sender of a stream writes, and the receiver reads, in one call,
	// as in iperf3.
	chunk = 128 << 10
	// patience is the time limit for a connection, and for calls on a socket. A measurement that
	// exceeds it has failed.
	patience = 3 * time.Second
)

// streams are TCP connections that send as much as they can.
type streams struct {
	ends     []net.Conn
	movers   errgroup.Group
	stopping atomic.Bool
	received atomic.Uint64 // bytes
}

// newStreams starts n streams from one namespace to an address in another.
func newStreams(from, to, addr string, n int) (traffic, error) {
	s := &streams{}
	for range n {
		out, in, err := connect(from, to, addr)
		if err != nil {
			return nil, errors.Join(err, s.stop())
		}
		s.ends = append(s.ends, out, in)
		s.move(func(b []byte) error {
			_, err := out.Write(b)
			return err
		})
		s.move(func(b []byte) error {
			n, err := in.Read(b)
			s.received.Add(uint64(n))
			return err
		})
	}
	return s, nil
}

// move calls step until the streams are stopped.
func (s *streams) move(step func(b []byte) error) {
	s.movers.Go(func() error {
		b := make([]byte, chunk)
		for {
			if err := step(b); s.stopping.Load() {
				return nil
			} else if err != nil {
				return err
			}
		}
	})
}

func (s *streams) count() uint64 { return s.received.Load() }

// stop ends the streams, and returns the first error that occurred before.
func (s *streams) stop() error {
	s.stopping.Store(true)
	for _, c := range s.ends {
		_ = c.Close() // the stream may have failed already
	}
	return s.movers.Wait()
}

// connect opens a TCP connection, and returns both ends.
func connect(from, to, addr string) (out, in net.Conn, err error) {
	var ln net.Listener
	if err := netns.Do(to, func() (err error) {
		ln, err = net.Listen("tcp", net.JoinHostPort(addr, "0"))
		return err
	}); err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := netns.Do(from, func() (err error) {
		out, err = new(net.Dialer).DialContext(ctx, "tcp", ln.Addr().String())
		return err
	}); err != nil {
		return nil, nil, err
	}
	if in, err = ln.Accept(); err != nil {
		return nil, nil, errors.Join(err, out.Close())
	}
	return out, in, nil
}

package session

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/internal/ticker"
)

const (
	defaultHandshakeTimeout = 5 * time.Second
	defaultPeerTimeout      = 900 * time.Millisecond
	// byeTimeout bounds the write of a last message to a peer that may be dead.
	byeTimeout = time.Second
)

// Conn is the part of a connection that both ends have, with a method for each message that
// either may send, or have handled, once there is a session. Its files, from its beginning to
// its end: authentication.go, conn.go for the handshake and the end, established.go and
// heartbeat.go for what is between.
//
// A goroutine belongs to an established connection: runReader, which waits for a
// bye or the end. Besides, all connections of the process share a ticker (look), so
// that a little data is on its way while nobody else hears the peer, and the kernel
// notices a dead machine. Both end with the connection, and Close waits for them.
type Conn struct {
	authentication
	raw         net.Conn                    // TCP, for deadlines
	stream      net.Conn                    // tls, for everything after the authentication
	handshake   func(context.Context) error // that of tls
	deadline    time.Time                   // of the handshake
	peerTimeout time.Duration

	authenticated atomic.Bool   // or that has failed
	throttled     atomic.Uint64 // heartbeats of the peer's
	direct        directing     // written before the session is established
	draining      draining      // the same
	writing       sync.Mutex    // held while a frame is written
	broken        chan struct{} // closed when a heartbeat could not be sent
	workers       sync.WaitGroup
	heartbeats    heartbeats

	end struct {
		sync.Mutex
		reason error
		done   chan struct{} // closed when there is a reason
	}
	closing struct {
		sync.Mutex             // held while a last message may not be cut short
		said       atomic.Bool // a last message was sent
		once       sync.Once
	}
}

// heartbeats are those of a connection.
type heartbeats struct {
	task    atomic.Pointer[ticker.Task] // written before there is a reason for the end, or never
	vouched atomic.Bool
	going   atomic.Bool // one is being sent
	broken  sync.Once
}

// newConn takes nc over. useTLS has to follow.
func newConn(nc net.Conn, s *Security, peer role, deadline time.Time, peerTimeout time.Duration) *Conn {
	c := &Conn{
		authentication: authentication{security: s, peerRole: peer, remote: nc.RemoteAddr()},
		raw:            nc,
		deadline:       deadline,
		peerTimeout:    peerTimeout,
		broken:         make(chan struct{}),
	}
	c.conn = c
	c.end.done = make(chan struct{})
	return c
}

// useTLS makes t what the connection is secured by.
func (c *Conn) useTLS(t *tls.Conn) { c.tls, c.stream, c.handshake = t, t, t.HandshakeContext }

// LocalAddr is this side's TCP address.
func (c *Conn) LocalAddr() net.Addr { return c.raw.LocalAddr() }

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.end.done }

// Err is nil while the connection lives, and then says why it ended: a
// *ByeError, an error that wraps ErrPeerGone, the error of a failed step, a
// *RevokedError, or net.ErrClosed after this side's Bye or Close.
func (c *Conn) Err() error {
	c.end.Lock()
	defer c.end.Unlock()
	return c.end.reason
}

// Bye tells the peer that this side ends the session, and closes. It waits a
// second at most for a peer that does not read.
func (c *Conn) Bye(code Code, message string) error {
	if !c.finish(net.ErrClosed) {
		return c.Close()
	}
	err := c.farewell(byeMessage{typeBye, code, text(message)})
	if err != nil {
		err = fmt.Errorf("say bye to %v: %w", c, err)
	}
	return errors.Join(err, c.Close())
}

// farewell sends a last message, of which there is one.
func (c *Conn) farewell(message any) error {
	if c.closing.said.Swap(true) {
		return nil
	}
	// Before the lock: a write in progress to a dead peer must end too.
	c.raw.SetWriteDeadline(time.Now().Add(byeTimeout))
	return c.send(message)
}

// Close ends the connection without a bye: the peer declares this side dead.
// It returns when the connection's goroutines have ended.
func (c *Conn) Close() error {
	c.finish(net.ErrClosed)
	c.shut()
	c.heartbeats.task.Load().Stop()
	c.workers.Wait()
	return nil
}

// finish records the first reason why the connection ended and reports whether
// this was it.
func (c *Conn) finish(err error) bool {
	c.end.Lock()
	defer c.end.Unlock()
	if c.end.reason != nil {
		return false
	}
	c.end.reason = err
	close(c.end.done)
	c.security.forget(&c.authentication)
	return true
}

// shut closes the sockets. Their errors are about a connection that is given
// up and change nothing.
func (c *Conn) shut() {
	c.closing.Lock()
	defer c.closing.Unlock()
	c.closing.once.Do(func() {
		c.raw.SetWriteDeadline(time.Now().Add(byeTimeout))
		c.stream.Close()
	})
}

// fail ends the connection for err and returns it, or the reason for which it
// had ended already.
func (c *Conn) fail(err error) error {
	if !c.finish(err) {
		err = c.Err()
	}
	c.shut()
	return err
}

// expel ends the connection, with a last message unless the TLS handshake is still
// going on, and reports whether it had not ended before.
func (c *Conn) expel(err *RevokedError) bool {
	c.closing.Lock()
	first := c.finish(fmt.Errorf("%v: %w", c, err))
	// In the middle of the TLS handshake there is no way to tell it: that would
	// wait until the peer has done its part, which it need not do.
	if first && c.authenticated.Load() {
		_ = c.farewell(byeMessage{typeBye, CodeRevoked, text("this key is no longer trusted: " + err.Reason.Error())})
	}
	c.closing.Unlock()
	if first {
		c.shut()
	}
	return first
}

// step runs f, one step of the handshake, bounded by ctx and the handshake's
// deadline. An error of it ends the connection.
func (c *Conn) step(ctx context.Context, doing string, f func() error) error {
	if err := c.Err(); err != nil {
		return fmt.Errorf("%s %v: %w", doing, c, err)
	}
	c.raw.SetDeadline(c.deadline)
	stop := context.AfterFunc(ctx, func() {
		// What is being written may end: a record that TLS has counted and not
		// sent would make the peer take the bye that follows for forged.
		c.raw.SetWriteDeadline(time.Now().Add(byeTimeout))
		c.raw.SetReadDeadline(time.Unix(1, 0))
	})
	err := f()
	if !stop() {
		err = context.Cause(ctx)
	}
	if err == nil {
		c.raw.SetDeadline(time.Time{})
		return nil
	}
	err = c.explain(err)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("no answer in time: %w", err)
	case disconnected(err):
		err = fmt.Errorf("%w: %w", ErrPeerGone, err)
	default:
		c.blame(err)
	}
	return c.fail(fmt.Errorf("%s %v: %w", doing, c, err))
}

// authenticate has both sides prove who they are. From here on a peer whose
// machine dies is found gone when it does not acknowledge what it is sent, so that
// what is held for it does not have to wait for the handshake's deadline, nor
// whoever has somewhere else to go.
func (c *Conn) authenticate(ctx context.Context) error {
	return c.step(ctx, "authenticate", func() error {
		if err := setUserTimeout(c.raw, c.peerTimeout); err != nil {
			return err
		}
		err := c.handshake(ctx)
		c.authenticated.Store(true)
		return err
	})
}

// blame tells the peer when the connection is to end for its content. That the
// peer does not get to know is no loss.
func (c *Conn) blame(err error) {
	switch {
	case errors.Is(err, errOwn):
		_ = c.farewell(byeMessage{typeBye, CodeFailed, "internal error"})
	case errors.Is(err, ErrMessage), errors.Is(err, ErrUnexpected), errors.Is(err, ErrFrame):
		_ = c.farewell(byeMessage{typeBye, CodeProtocol, text(err.Error())})
	}
}

// disconnected reports whether err is of the network, as opposed to one of TLS
// or of content.
func disconnected(err error) bool {
	if remoteAlert(err) != nil {
		return false
	}
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) ||
		errors.As(err, &op)
}

func (c *Conn) send(message any) error {
	frame, err := encodeFrame(message)
	if err != nil {
		return err
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err = c.stream.Write(frame)
	return err
}

// receive reads the next message of the handshake, which must be of a given type.
// What else may come instead is returned as the error that it is.
func (c *Conn) receive(want string, or ...string) ([]byte, error) {
	b, err := readFrame(c.stream)
	if err != nil {
		return nil, err
	}
	got, err := messageType(b)
	if err != nil {
		return nil, err
	}
	switch {
	case got == want, slices.Contains(or, got):
		return b, nil
	case got == typeBye:
		bye, err := decodeBye(b)
		if err != nil {
			return nil, err
		}
		return nil, bye
	case got == typeRefuse && (want == typeWelcome || want == typeRenewed):
		return nil, decodeRefuse(b)
	default:
		return nil, fmt.Errorf("%q instead of %q: %w", text(got), want, ErrUnexpected)
	}
}

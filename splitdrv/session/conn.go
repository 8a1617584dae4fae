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

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/splitnic/splitnic/internal/ticker"
)

const (
	defaultHandshakeTimeout = 5 * time.Second
	defaultPeerTimeout      = time.Second
	// byeTimeout is the time-out for the last message to a peer that may be dead.
	byeTimeout = time.Second
)

// Conn is the part of a connection that both ends have. It has a method for each message
// that either side may send or handle in an established session. authentication.go has the
// authentication, conn.go the handshake and the end, established.go and heartbeat.go the
// time in between.
//
// An established connection has a goroutine, runReader, which waits for messages and the
// end. All connections of the process share a ticker (look), which sends heartbeats while
// the peer is not heard by other means, so that the kernel notices a dead machine. Close
// waits until both have ended.
type Conn struct {
	authentication
	raw         net.Conn                    // TCP connection, for deadlines
	stream      net.Conn                    // tls, for all data after the authentication
	handshake   func(context.Context) error // TLS handshake
	deadline    time.Time                   // end of the handshake time-out
	peerTimeout time.Duration
	next        step // of the handshake

	authenticated atomic.Bool        // the TLS handshake is over, also if it has failed
	throttled     atomic.Uint64      // heartbeats of the peer that had to wait
	handlers      map[string]handler // by type of message; written before the session is established
	writing       sync.Mutex         // held while a frame is written
	broken        chan struct{}      // closed when a heartbeat could not be sent
	workers       sync.WaitGroup
	heartbeats    heartbeats

	end struct {
		sync.Mutex
		reason error
		done   chan struct{} // closed when there is a reason
	}
	closing struct {
		sync.Mutex             // held while a last message is sent
		said       atomic.Bool // a last message was sent
		once       sync.Once
	}
}

// heartbeats has the state of a connection's heartbeats.
type heartbeats struct {
	task    atomic.Pointer[ticker.Task] // written before there is a reason for the end, or never
	vouched atomic.Bool
	going   atomic.Bool // a heartbeat is being sent
	broken  sync.Once
}

// handler handles the messages of a type in an established session. Further messages than its rate
// permits wait at the sender.
type handler struct {
	decode func(b []byte) (handle func(), err error)
	rate   *rate.Limiter
}

// newConn returns a connection that takes over nc. useTLS must be called next.
func newConn(nc net.Conn, s *Security, peer role, deadline time.Time, peerTimeout time.Duration) *Conn {
	c := &Conn{
		authentication: authentication{security: s, peerRole: peer, remote: nc.RemoteAddr()},
		raw:            nc,
		deadline:       deadline,
		peerTimeout:    peerTimeout,
		next:           stepHello, // of a client; greet sets that of a server
		broken:         make(chan struct{}),
	}
	c.conn = c
	c.end.done = make(chan struct{})
	return c
}

func (c *Conn) useTLS(t *tls.Conn) { c.tls, c.stream, c.handshake = t, t, t.HandshakeContext }

// Done returns a channel that is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.end.done }

// Err returns nil while the connection lasts, and then the reason for its end: a *ByeError,
// an error that wraps ErrPeerGone, the error of a failed step, a *RevokedError, or
// net.ErrClosed after this side's Bye or Close.
func (c *Conn) Err() error {
	c.end.Lock()
	defer c.end.Unlock()
	return c.end.reason
}

// Bye tells the peer that this side ends the session, and closes the connection. It waits at
// most a second for a peer that does not read.
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

// farewell sends a last message, unless one was sent before.
func (c *Conn) farewell(message any) error {
	if c.closing.said.Swap(true) {
		return nil
	}
	// Set before the lock is taken, so that it also ends a write in progress.
	c.raw.SetWriteDeadline(time.Now().Add(byeTimeout))
	return c.send(message)
}

// Close ends the connection without a bye, so the peer declares this side dead. It returns
// when the connection's goroutines have ended.
func (c *Conn) Close() error {
	c.finish(net.ErrClosed)
	c.shut()
	c.heartbeats.task.Load().Stop()
	c.workers.Wait()
	return nil
}

// finish records the reason for the end of the connection, unless there is one already, and
// reports whether it has.
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

// shut closes the sockets. Their errors have no consequence.
func (c *Conn) shut() {
	c.closing.Lock()
	defer c.closing.Unlock()
	c.closing.once.Do(func() {
		c.raw.SetWriteDeadline(time.Now().Add(byeTimeout))
		c.stream.Close()
	})
}

// fail ends the connection because of err, and returns err, or the reason for which it had
// already ended.
func (c *Conn) fail(err error) error {
	if !c.finish(err) {
		err = c.Err()
	}
	c.shut()
	return err
}

// expel ends the connection, with a last message unless the TLS handshake is not over. It
// reports false if the connection had already ended.
func (c *Conn) expel(err *RevokedError) bool {
	c.closing.Lock()
	first := c.finish(fmt.Errorf("%v: %w", c, err))
	// During the TLS handshake there is no message, because sending one would wait until
	// the peer has done its part of the handshake.
	if first && c.authenticated.Load() {
		_ = c.farewell(byeMessage{typeBye, CodeRevoked, text("this key is no longer trusted: " + err.Reason.Error())})
	}
	c.closing.Unlock()
	if first {
		c.shut()
	}
	return first
}

// step names the method of a handshake that has to be called next.
type step string

const (
	stepHello   step = "hello"   // Client.Hello
	stepWelcome step = "welcome" // Server.Welcome, or Refuse
	stepAccept  step = "accept"  // Client.Accept
	stepReady   step = "ready"
	stepNone    step = ""
)

// begin reports whether s is the next step. No other one can follow it before its end.
func (c *Conn) begin(s step) bool {
	next := c.next == s
	if next {
		c.next = stepNone
	}
	return next
}

// turn runs f as the step s, if that is next. If f succeeds, the step then follows.
func (c *Conn) turn(ctx context.Context, s, then step, doing string, f func() error) error {
	if !c.begin(s) {
		return fmt.Errorf("%s: %w", s, ErrOrder)
	}
	if err := c.step(ctx, doing, f); err != nil {
		return err
	}
	c.next = then
	return nil
}

// step runs f, a step of the handshake, until ctx or the handshake's deadline ends it. An
// error ends the connection.
func (c *Conn) step(ctx context.Context, doing string, f func() error) error {
	if err := c.Err(); err != nil {
		return fmt.Errorf("%s %v: %w", doing, c, err)
	}
	c.raw.SetDeadline(c.deadline)
	stop := context.AfterFunc(ctx, func() {
		// A write in progress gets some time: if TLS has counted a record and not sent it,
		// the peer takes the following bye for forged.
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

// authenticate authenticates both sides. From now on a dead machine of the peer is detected
// because it acknowledges no data, so that neither this side's resources nor its attempt
// with another peer have to wait for the handshake's deadline.
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

// blame tells the peer why the connection ends, if the reason is the content of a message.
// Errors of this message are ignored.
func (c *Conn) blame(err error) {
	switch {
	case errors.Is(err, errOwn):
		_ = c.farewell(byeMessage{typeBye, CodeFailed, "internal error"})
	case errors.Is(err, ErrMessage), errors.Is(err, ErrUnexpected), errors.Is(err, ErrFrame):
		_ = c.farewell(byeMessage{typeBye, CodeProtocol, text(err.Error())})
	}
}

// disconnected reports whether err is an error of the network, and not of TLS or of the
// content of a message.
func disconnected(err error) bool {
	if remoteAlert(err) != nil {
		return false
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) ||
		as[*net.OpError](err)
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

// receive reads the next message of the handshake, which must be of one of the given types.
// A bye or a refusal is returned as an error.
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
		return nil, decodeBye(b)
	case got == typeRefuse && (want == typeWelcome || want == typeRenewed):
		return nil, decodeRefuse(b)
	default:
		return nil, fmt.Errorf("%q instead of %q: %w", text(got), want, ErrUnexpected)
	}
}

// setUserTimeout sets for how long data may be unacknowledged before the kernel ends the
// connection (TCP_USER_TIMEOUT of tcp(7)).
//
// The first seven retransmissions happen at equal intervals (TCP_THIN_LINEAR_TIMEOUTS;
// Documentation/networking/tcp-thin.rst). With exponential back-off there could be none in the
// second half of d, so that a gap of half of d would end the connection. The kernel takes a
// connection for thin only with a congestion control that has a slow-start threshold, which bbr
// does not have, so it is set to reno, which each kernel has. Where the administrator has forbidden
// reno (tcp_allowed_congestion_control), this is ignored.
//
// setUserTimeout does nothing for connections other than TCP.
func setUserTimeout(nc net.Conn, d time.Duration) error {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err == nil {
		var setErr error
		err = raw.Control(func(fd uintptr) {
			setErr = errors.Join(
				unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds())),
				unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_THIN_LINEAR_TIMEOUTS, 1))
			_ = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno")
		})
		err = errors.Join(err, setErr)
	}
	if err != nil {
		return fmt.Errorf("set TCP_USER_TIMEOUT and TCP_THIN_LINEAR_TIMEOUTS: %w", err)
	}
	return nil
}

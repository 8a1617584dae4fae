package session

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// DefaultMaxHandshakes is the default of ServerConfig.MaxHandshakes.
	DefaultMaxHandshakes = 64
	maxAcceptDelay       = time.Second
)

// ServerConfig is the configuration of an I/O unit's listener.
type ServerConfig struct {
	Security *Security // required
	// HandshakeTimeout is the time-out from the arrival of a connection to the end of Ready,
	// including the wait for Accept; default 5 s.
	HandshakeTimeout time.Duration
	// PeerTimeout is as in ClientConfig, for the host's machine.
	PeerTimeout time.Duration
	// MaxHandshakes is the largest number of connections without a valid hello; default 64. A
	// quarter of them may be from one IPv4 address or one /64 of IPv6 addresses. One more
	// replaces the oldest one from there, or the oldest one from the network with the most
	// connections: from the /48, in that the /56, in that the /64; for IPv4 the /16, the /24,
	// the address. Three quarters are reserved for addresses from which peers were
	// authenticated before, if these need them. As many again may wait for Accept; further
	// ones are refused as busy.
	MaxHandshakes int
	// Burst, if set, returns how many sessions a peer may open at once. A peer is a key, or,
	// in insecure mode, one IPv4 address or one /64 of IPv6 addresses. In the long run it may
	// open 4 per second; further attempts are refused as busy. Several goroutines call it.
	Burst func(Identity) int
	// Rejected, if set, is called for each connection that Accept does not return, with the
	// reason. Several goroutines call it.
	Rejected func(remote net.Addr, err error)

	now func() time.Time // clock of Burst; default time.Now
}

// Listener waits for hosts. Each handshake has its own goroutine, so that hosts do not wait
// for each other.
type Listener struct {
	ln       net.Listener
	cfg      ServerConfig
	ctx      context.Context // done when the listener is closed
	cancel   context.CancelFunc
	accepted chan *Server
	workers  sync.WaitGroup
	came     atomic.Uint64 // connections so far

	pending    *pendingConns // connections before their hello
	handshakes *handshakes
	sessions   *sessionRate // nil: no limit

	mu      sync.Mutex
	waiting int // hosts that wait for Accept
}

// ListenerStats has the counters of a listener.
type ListenerStats struct {
	Connections uint64 `json:"connections"` // connections that arrived
	Handshaking int    `json:"handshaking"` // connections without a hello at present
	Handshakes  uint64 `json:"handshakes"`  // TLS handshakes that began
	Delayed     uint64 `json:"delayed"`     // handshakes that had to wait for their turn
}

// Listen listens on addr, on DefaultPort unless addr has a port.
func Listen(addr string, cfg ServerConfig) (*Listener, error) {
	addr = WithPort(addr)
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for hosts on %s: %w", addr, err)
	}
	l, err := NewListener(ln, cfg)
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return l, nil
}

// NewListener returns a listener that waits for hosts on ln. It takes over ln unless it
// returns an error.
func NewListener(ln net.Listener, cfg ServerConfig) (*Listener, error) {
	if cfg.Security == nil {
		return nil, errors.New("listen for hosts: no Security in the ServerConfig")
	}
	cfg.HandshakeTimeout = cmp.Or(cfg.HandshakeTimeout, defaultHandshakeTimeout)
	cfg.PeerTimeout = cmp.Or(cfg.PeerTimeout, defaultPeerTimeout)
	if cfg.MaxHandshakes <= 0 {
		cfg.MaxHandshakes = DefaultMaxHandshakes
	}
	l := &Listener{
		ln: ln, cfg: cfg, accepted: make(chan *Server), pending: newPendingConns(cfg.MaxHandshakes),
		handshakes: newHandshakes(),
	}
	if cfg.now == nil {
		cfg.now = time.Now
	}
	if cfg.Burst != nil {
		l.sessions = newSessionRate(cfg.Burst, cfg.now)
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.workers.Go(l.runAccept)
	return l, nil
}

// Addr returns the address of the listener.
func (l *Listener) Addr() net.Addr { return l.ln.Addr() }

// Stats returns the counters.
func (l *Listener) Stats() ListenerStats {
	s := ListenerStats{Connections: l.came.Load(), Handshaking: l.pending.count()}
	s.Handshakes, s.Delayed = l.handshakes.Counts()
	return s
}

// Accept returns the next authenticated host with a valid hello. After Close the error wraps
// net.ErrClosed.
func (l *Listener) Accept(ctx context.Context) (*Server, error) {
	select {
	case s := <-l.accepted:
		return s, nil
	case <-l.ctx.Done():
		return nil, fmt.Errorf("accept a host: %w", net.ErrClosed)
	case <-ctx.Done():
		return nil, fmt.Errorf("accept a host: %w", context.Cause(ctx))
	}
}

// Close stops listening and ends the connections that Accept has not returned. The others
// continue. It returns when the listener's goroutines have ended.
func (l *Listener) Close() error {
	l.cancel()
	err := l.ln.Close()
	l.workers.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close listener on %v: %w", l.ln.Addr(), err)
	}
	return nil
}

func (l *Listener) runAccept() {
	delay := time.Duration(0)
	for {
		nc, err := l.ln.Accept()
		if err == nil {
			delay = 0
			l.came.Add(1)
			c := l.accept(nc)
			l.workers.Go(func() { l.serve(c) })
			continue
		}
		if l.ctx.Err() != nil {
			return
		}
		// Most likely there are no descriptors left. Connections that end free some.
		l.rejected(l.ln.Addr(), fmt.Errorf("accept a host: %w", err))
		delay = min(max(2*delay, 5*time.Millisecond), maxAcceptDelay)
		select {
		case <-time.After(delay):
		case <-l.ctx.Done():
			return
		}
	}
}

// serve authenticates the host, reads its hello and passes it to Accept.
func (l *Listener) serve(c *Conn) {
	var s *Server
	err := c.authenticate(l.ctx)
	if err == nil {
		s, err = greet(l.ctx, c, l.sessions)
	}
	l.pending.leave(c)
	if err == nil {
		l.pending.authenticated(c)
	}
	if err == nil && s == nil { // a session was renewed
		c.Close()
		return
	}
	if err == nil {
		err = l.deliver(s)
	}
	if err != nil {
		c.Close()
		l.rejected(c.RemoteAddr(), err)
	}
}

// deliver passes s to Accept, or refuses it.
func (l *Listener) deliver(s *Server) error {
	l.mu.Lock()
	full := l.waiting >= l.cfg.MaxHandshakes
	if !full {
		l.waiting++
	}
	l.mu.Unlock()
	if full {
		return errors.Join(fmt.Errorf("%v: %w", s.Conn, ErrTooManyHandshakes),
			s.Refuse(CodeBusy, "too many hosts are waiting"))
	}
	defer func() {
		l.mu.Lock()
		l.waiting--
		l.mu.Unlock()
	}()
	late := time.NewTimer(time.Until(s.deadline))
	defer late.Stop()
	select {
	case l.accepted <- s:
		return nil
	case <-s.Done():
		return s.Err() // the host is no longer trusted
	case <-late.C:
		return errors.Join(fmt.Errorf("%v: not accepted in time", s.Conn),
			s.Refuse(CodeBusy, "the I/O unit did not get to it in time"))
	case <-l.ctx.Done():
		return errors.Join(fmt.Errorf("%v: %w", s.Conn, net.ErrClosed),
			s.Refuse(CodeShuttingDown, "the I/O unit is shutting down"))
	}
}

func (l *Listener) rejected(remote net.Addr, err error) {
	if l.cfg.Rejected != nil && l.ctx.Err() == nil {
		l.cfg.Rejected(remote, err)
	}
}

// accept takes over a connection that a host has opened. Another one may be dropped for it.
func (l *Listener) accept(nc net.Conn) *Conn {
	c := newConn(nc, l.cfg.Security, roleHost, time.Now().Add(l.cfg.HandshakeTimeout), l.cfg.PeerTimeout)
	in := &incoming{Conn: nc, c: c, handshakes: l.handshakes}
	config := c.tlsConfig()
	config.GetConfigForClient = in.takeTurn(config.GetConfigForClient)
	c.useTLS(tls.Server(&records{Conn: in}, config))
	c.handshake = in.handshake
	known, out, err := l.pending.enter(c)
	in.known = known
	if out != nil {
		out.fail(err)
	}
	return c
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// nextTime bounds the time until the next measurement of a run begins.
const nextTime = 30 * time.Second

// ServerConfig is the configuration of a Server.
type ServerConfig struct {
	Device   fabric.Device
	Security *session.Security
	Kind     Kind            // kind that is served
	Modes    []protocol.Mode // modes that are allowed; nil: all
	Forever  bool            // serve run after run, instead of one
	// Messaging is the template for the channels. A Spec replaces some of its fields.
	Messaging messaging.Config
	Name      string // of this node
	Software  string // version

	// Prepare is called before a measurement.
	Prepare func(Spec)
	// Served is called after a measurement.
	Served func(Served)
	// Failed is called with the error of each initiator that is refused, and with
	// Forever, of each run that ends early. Several goroutines may call it.
	Failed func(err error)
}

// Served describes a measurement at the target.
type Served struct {
	Spec     Spec
	Peer     net.Addr
	Messages uint64        // received, or echoed
	Time     time.Duration // duration; 0 if it was not measured at this end
}

// Server is the target of measurements with [Client]s on other nodes. It serves one run at a time.
type Server struct {
	cfg ServerConfig
	ln  *session.Listener

	mu   sync.Mutex
	run  string        // run that is being served; empty: none
	left chan struct{} // closed at the end of the run
}

// Listen opens the TCP port of addr, or DefaultPort. Run serves it. Close closes it.
func Listen(addr string, cfg ServerConfig) (*Server, error) {
	s := &Server{cfg: cfg, left: make(chan struct{})}
	ln, err := net.Listen("tcp", WithPort(addr))
	if err != nil {
		return nil, err
	}
	s.ln, err = session.NewListener(ln, session.ServerConfig{
		Security: cfg.Security, HandshakeTimeout: handshakeTime, PeerTimeout: silence,
		Rejected: func(remote net.Addr, err error) { s.cfg.Failed(explain(remote.String(), err)) },
	})
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return s, nil
}

// Addr returns the address of the Server.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Close closes the port. It is idempotent.
func (s *Server) Close() error { return s.ln.Close() }

// request is the request of an initiator for a measurement.
type request struct {
	conn *session.Server
	spec Spec
}

// Run serves one run, or with Forever any number of runs until ctx is done. It returns the error of a
// run that ends early, or with Forever passes the error to Failed.
func (s *Server) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	requests := make(chan request)
	var acceptor sync.WaitGroup
	acceptor.Go(func() {
		for {
			c, err := s.ln.Accept(ctx)
			if err != nil {
				return // ctx is done, or the listener is closed
			}
			acceptor.Go(func() { s.meet(ctx, c, requests) })
		}
	})
	defer acceptor.Wait()
	defer stop()
	for {
		err := s.serveRun(ctx, requests)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !s.cfg.Forever:
			return err
		case err != nil:
			s.cfg.Failed(err)
		}
	}
}

// serveRun serves the measurements of one run.
func (s *Server) serveRun(ctx context.Context, requests <-chan request) error {
	defer s.leave()
	var late <-chan time.Time // for the next measurement
	for {
		select {
		case r := <-requests:
			if more, err := s.serve(ctx, r); err != nil || !more {
				return err
			}
			late = time.After(nextTime)
		case <-late:
			return fmt.Errorf("the other end did not come back for the next measurement of its run within %v", nextTime)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// meet refuses an initiator, or passes it to Run.
func (s *Server) meet(ctx context.Context, c *session.Server, requests chan<- request) {
	spec, code, err := s.admit(ctx, c.Hello())
	if err != nil {
		s.cfg.Failed(errors.Join(fmt.Errorf("turned away %v: %w", c.RemoteAddr(), err), c.Refuse(code, err.Error())))
		return
	}
	select {
	case requests <- request{c, spec}:
	case <-ctx.Done():
		_ = c.Refuse(session.CodeShuttingDown, "it has ended") // an error has no consequences
	}
}

// admit decides about the request of an initiator.
func (s *Server) admit(ctx context.Context, h session.Hello) (Spec, session.Code, error) {
	spec, run, err := parseParameters(h.Features, h.Modes, h.Queues)
	switch {
	case errors.Is(err, errParameters):
		return spec, session.CodeBadHello, fmt.Errorf("this end is splitnic %s, the other %s: %w", s.cfg.Software, h.Software,
			err)
	case err != nil:
		return spec, session.CodeBadHello, err
	case spec.Kind != s.cfg.Kind:
		return spec, session.CodePolicy, fmt.Errorf(
			"it serves `splitnic bench %s`, not %s; start the same command on both nodes", s.cfg.Kind, spec.Kind)
	case s.cfg.Modes != nil && !slices.Contains(s.cfg.Modes, spec.Mode):
		return spec, session.CodeMode, fmt.Errorf("it allows --mode %s only, not %s", joinModes(s.cfg.Modes), spec.Mode)
	case !s.enter(ctx, run):
		return spec, session.CodeBusy, errors.New("it is busy with another run; try again when that is over")
	}
	return spec, "", nil
}

func joinModes(modes []protocol.Mode) string {
	text := string(modes[0])
	for _, m := range modes[1:] {
		text += "," + string(m)
	}
	return text
}

// enter makes run the served run, unless another one is served. It waits for a moment for the end of
// another run, because an initiator may follow another one immediately.
func (s *Server) enter(ctx context.Context, run string) bool {
	timer := time.NewTimer(leaveTime)
	defer timer.Stop()
	for {
		s.mu.Lock()
		if s.run == "" {
			s.run = run
		}
		served, left := s.run, s.left
		s.mu.Unlock()
		if served == run {
			return true
		}
		select {
		case <-left:
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// leaveTime bounds the wait for the end of another run.
const leaveTime = time.Second

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run = ""
	close(s.left)
	s.left = make(chan struct{})
}

// serve carries out a measurement, and reports whether another one of the same run follows.
func (s *Server) serve(ctx context.Context, r request) (more bool, err error) {
	c := r.conn
	defer c.Close()
	s.cfg.Prepare(r.spec)
	hello := c.Hello()
	mcfg := s.cfg.Messaging
	mcfg.Device, mcfg.PeerPools = s.cfg.Device, hello.PoolsIn(r.spec.Mode)
	features := []string{parameterVersion}
	bind := hello.Offers(protocol.FeatureBind)
	if bind {
		features = append(features, protocol.FeatureBind)
	}
	addr := c.RemoteAddr().String()
	e, err := newEndOf(c, addr, r.spec, mcfg, bind, false)
	if err != nil {
		return false, errors.Join(err, c.Refuse(session.CodeFailed, err.Error()))
	}
	defer func() { err = errors.Join(err, e.close()) }()
	accept, err := c.Welcome(ctx, session.Welcome{
		Features: features, Name: s.cfg.Name, Software: s.cfg.Software,
		Mode: r.spec.Mode, Queues: r.spec.Queues, Pools: r.spec.messaging(mcfg).Lends(),
		MAC: nobody, MTU: protocol.MaxMTU, ControlReceives: e.conn.ControlReceives(),
		Channels: session.Channels(e.conn.Addresses()),
	})
	if err == nil {
		err = e.with(ctx, c, accept.Channels, accept.ControlReceives, nil)
	}
	// The initiator ends a measurement.
	var bye *session.ByeError
	if !errors.As(err, &bye) || bye.Code != codeNext && bye.Code != codeDone {
		return false, explain(addr, err)
	}
	served := Served{Spec: e.spec, Peer: c.RemoteAddr(), Messages: e.count()}
	if e.rx != nil && isDone(e.rx.done) {
		served.Time = e.rx.report.Time
	}
	s.cfg.Served(served)
	return bye.Code == codeNext, nil
}

package session

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/splitnic/splitnic/internal/limit"
	"github.com/splitnic/splitnic/protocol"
)

// Server is the I/O unit's end of a session's connection.
type Server struct {
	*Conn
	hello   Hello
	welcome Welcome
}

// greet reads the hello of an authenticated host. It refuses an invalid hello, and a host
// that opens sessions faster than rate, which may be nil. It returns neither a Server nor an
// error if the host has renewed a session instead.
func greet(ctx context.Context, c *Conn, rate *sessionRate) (*Server, error) {
	s := &Server{Conn: c}
	s.next = stepWelcome
	renewed := false
	err := c.step(ctx, "read the hello of", func() error {
		b, err := c.receive(typeHello, typeRenew)
		if err != nil {
			return err
		}
		if rate != nil {
			if wait, err := rate.open(c); err != nil {
				_ = s.refuse(CodeBusy, err.Error(), wait)
				return err
			}
		}
		if t, _ := messageType(b); t == typeRenew {
			renewed = true
			if err = c.renewed(b); err != nil {
				_ = s.refuse(CodeBadHello, err.Error(), 0)
			}
			return err
		}
		s.hello, err = decodeHello(b)
		var version *VersionError
		switch {
		case errors.As(err, &version):
			_ = s.refuse(CodeVersion,
				fmt.Sprintf("the I/O unit speaks protocol %v, the host %v", version.Local, version.Remote), 0)
		case err != nil:
			_ = s.refuse(CodeBadHello, err.Error(), 0)
		}
		return err
	})
	if err != nil || renewed {
		return nil, err
	}
	return s, nil
}

// Hello returns the host's requests. The values are within their ranges; the modes can be
// unknown words.
func (s *Server) Hello() Hello { return s.hello }

// Deadline returns when the handshake has to be over.
func (s *Server) Deadline() time.Time { return s.deadline }

// issue returns the platform identifier of a host with a run, and the run of the I/O unit's
// process.
func (s *Server) issue(run protocol.Run) (protocol.Platform, protocol.Run) {
	if run == (protocol.Run{}) {
		return 0, protocol.Run{}
	}
	s.issued.own, s.issued.peer = s.platform(), protocol.PlatformOf(s.Peer().Fingerprint, run)
	return s.issued.peer, s.security.run
}

// Refuse tells the host that it gets no session, and closes the connection. It is called
// instead of Welcome. After some codes, such as CodeBusy, the host tries again.
func (s *Server) Refuse(code Code, message string) error {
	if !s.begin(stepWelcome) {
		return fmt.Errorf("refuse: %w", ErrOrder)
	}
	if !s.finish(net.ErrClosed) {
		return s.Close()
	}
	err := s.refuse(code, message, 0)
	if err != nil {
		err = fmt.Errorf("refuse %v: %w", s.Conn, err)
	}
	return errors.Join(err, s.Close())
}

func (s *Server) refuse(code Code, message string, after time.Duration) error {
	return s.farewell(refuseMessage{
		typeRefuse, code, text(message), spoken, code.retry(), uint32(after.Milliseconds()),
	})
}

// Welcome sends what the I/O unit grants and returns the addresses of the host's queue pairs.
// Of the features and offloads in welcome, those that the host supports are sent. Welcome
// sets Version, Session if it is empty, and Platform and Run if the hello has a run.
func (s *Server) Welcome(ctx context.Context, welcome Welcome) (Accept, error) {
	var accept Accept
	err := s.turn(ctx, stepWelcome, stepReady, "exchange channels with", func() error {
		if welcome.Session == "" {
			welcome.Session = newSessionID()
		}
		welcome.Version = spoken.Max
		welcome.Offloads &= s.hello.Offloads
		welcome.Features = slices.DeleteFunc(slices.Clone(welcome.Features), func(f string) bool {
			return !slices.Contains(s.hello.Features, f)
		})
		welcome.Platform, welcome.Run = s.issue(s.hello.Run)
		if err := welcome.validate(&s.hello); err != nil {
			return fmt.Errorf("%w welcome: %w", errOwn, err)
		}
		s.welcome = welcome
		if err := s.send(welcomeMessage{typeWelcome, welcome}); err != nil {
			return err
		}
		b, err := s.receive(typeAccept)
		if err != nil {
			return err
		}
		accept, err = decodeAccept(b, &s.welcome)
		return err
	})
	if err != nil {
		return Accept{}, err
	}
	return accept, nil
}

// Ready tells the host that the I/O unit's queue pairs are connected and their receives are
// posted, and waits until the host reports the same. Then the session is established.
func (s *Server) Ready(ctx context.Context) error {
	err := s.turn(ctx, stepReady, stepNone, "establish the session with", func() error {
		if err := s.send(readyMessage{typeReady}); err != nil {
			return err
		}
		_, err := s.receive(typeReady)
		return err
	})
	if err != nil {
		return err
	}
	if s.welcome.Grants(protocol.FeatureRenew) {
		s.session.Store(&s.welcome.Session)
	}
	return s.establish()
}

// SessionID returns the identifier in the welcome, for logs on both sides.
func (s *Server) SessionID() string { return s.welcome.Session }

func newSessionID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// HandleStays registers fn, which is called with the reason when the host reports that it
// does not move. The rules of Client.HandleDrain apply.
func (s *Server) HandleStays(fn func(reason string)) {
	s.handles(typeStays, drainRate, drainBurst, func(b []byte) (func(), error) {
		reason, err := decodeStays(b)
		return func() { fn(reason) }, err
	})
}

// Drain asks the host of an established session with the feature drain to move to another
// I/O unit, or, if on is false, to stay. If the host does not read the message within
// timeout, Drain ends the connection.
func (s *Server) Drain(on bool, timeout time.Duration) error {
	return s.sendWithin(drainMessage{typeDrain, on}, timeout)
}

// sessionsPerSecond is how many sessions a key may open per second in the long run. For each
// session the kernel creates and removes registered memory, queue pairs and a netdevice,
// which slows down other sessions. max-sessions of the policy limits how many sessions a key
// has; this limits how fast it may open them.
const sessionsPerSecond = 4

// sessionRate limits how fast each key opens sessions. A refused attempt is not charged.
type sessionRate struct {
	burst func(Identity) int // returns how many sessions a peer may open at once
	now   func() time.Time
	keys  *limit.Keyed
}

func newSessionRate(burst func(Identity) int, now func() time.Time) *sessionRate {
	return &sessionRate{burst: burst, now: now, keys: limit.NewKeyed(sessionsPerSecond)}
}

// open charges a session to the authenticated peer of c. If the limit is exceeded, it returns
// an error that wraps ErrTooOften, and the time until another session is permitted.
func (r *sessionRate) open(c *Conn) (wait time.Duration, err error) {
	key, burst := c.LimitKey(), max(r.burst(c.Peer()), 1)
	if wait = r.keys.Take(r.now(), key, 1, burst); wait == 0 {
		return 0, nil
	}
	wait = wait.Truncate(time.Millisecond) + time.Millisecond // not too soon
	whose, todo := "key", "stop the service that reconnects with it repeatedly, or give each host its own key"
	if key.IsMachine() {
		whose, todo = "address", "stop the service that reconnects repeatedly there"
	}
	return wait, fmt.Errorf("%w: %d at once and %d in a second are allowed for one %s, the next one in %v; %s",
		ErrTooOften, burst, sessionsPerSecond, whose, wait, todo)
}

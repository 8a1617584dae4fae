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

	"golang.org/x/time/rate"

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
	s.draining = draining{stays: fn, rate: rate.NewLimiter(drainRate, drainBurst)}
}

// Drain asks the host of an established session with the feature drain to move to another
// I/O unit, or, if on is false, to stay. If the host does not read the message within
// timeout, Drain ends the connection.
func (s *Server) Drain(on bool, timeout time.Duration) error {
	return s.sendWithin(drainMessage{typeDrain, on}, timeout)
}

package host

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/vnet"
)

// sessions has the session in use, the state of a change from one session to the next, and
// counts of past sessions. Any goroutine may use it.
type sessions struct {
	cfg *Config

	mu        sync.Mutex // guards the fields below; taken after netdev.mu
	current   current
	handling  handling
	failovers failovers
	tally     tally
}

// current is the session in use.
type current struct {
	state    State
	since    time.Time
	addr     string // address of the I/O unit in use, or tried last
	peer     session.Identity
	platform protocol.Platform // platform of the I/O unit
	welcome  session.Welcome
	conn     *messaging.Conn // nil: none
	drain    *drain          // request of the I/O unit
}

// handling has the handlers of all sessions, including the one in use.
type handling struct {
	cq.Handling
	changes int
}

// failovers records changes of the session in use, and has the frames that are carried over.
type failovers struct {
	uplink.Failovers
	request  *switchRequest    // request for the change; nil for an unplanned one
	unsent   *messaging.Unsent // frames of the last session; nil if they are taken
	offloads vnet.Offloads     // offloads of that session
}

// tally has the counts since the start.
type tally struct {
	sessions int
	attempts int // attempts that failed, and sessions that ended
	lastErr  error
	failed   map[string]error // last error of each I/O unit since there was a session
	// permanent is true if all I/O units failed for permanent reasons in the last round.
	permanent bool
	warned    map[string]failure // last logged failure of each I/O unit
	ended     map[string]uint64  // by reason, one of Endings: sessions that were no longer permitted
}

// Endings returns all reasons of sessions that the host has ended because the I/O unit is no
// longer trusted.
func Endings() []string { return []string{"untrusted", "revoked", "expired"} }

// inUse returns the connection of the session in use, or nil.
func (s *sessions) inUse() *messaging.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current.conn
}

// use makes a the session in use. If the handlers have changed while it was opened, use
// applies the change. The caller holds netdev.mu.
func (s *sessions) use(a *attachment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handling.changes != a.change {
		if err := a.conn.SetHandling(s.handling.Handling); err != nil {
			s.cfg.Log.Warn("completion-queue handlers", "error", err)
		}
	}
	s.current = current{
		state: Connected, since: a.since, addr: a.addr,
		peer: a.client.Peer(), platform: a.client.PeerPlatform(), welcome: a.welcome, conn: a.conn, drain: &a.drain,
	}
	s.tally.lastErr, s.tally.failed, s.tally.permanent = nil, nil, false
	clear(s.tally.warned)
	s.tally.sessions++
}

func (s *sessions) useNone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current.state, s.current.since, s.current.conn = Connecting, time.Now(), nil
}

// setLink records the link of the I/O unit in use, and reports whether it has changed.
func (s *sessions) setLink(l session.Link) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news = s.current.welcome.Link != l
	s.current.welcome.Link = l
	return news
}

// renamed records the new identity of the I/O unit in use.
func (s *sessions) renamed(a *attachment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current.conn == a.conn {
		s.current.peer = a.client.Peer()
	}
}

// tried records the result of the last attempt with an I/O unit, or the end of a session.
func (s *sessions) tried(addr string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current.addr = addr
	if err == nil {
		return
	}
	s.tally.note(addr, err)
	s.tally.attempts++
	if errors.As(err, new(*session.RevokedError)) {
		if s.tally.ended == nil {
			s.tally.ended = make(map[string]uint64)
		}
		s.tally.ended[session.Reason(err)]++
	}
}

// note records why the last attempt at an I/O unit has failed, or why its session has ended.
func (t *tally) note(addr string, err error) {
	if t.failed == nil || len(t.failed) >= mostWarned {
		t.failed = make(map[string]error)
	}
	t.failed[addr] = err
	t.lastErr = err
}

// notePermanent records whether trying all I/O units again does not help.
func (s *sessions) notePermanent(is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.permanent = is
}

// mostWarned is the largest number of I/O units whose last logged failure is remembered. DNS
// may name new ones all the time.
const mostWarned = 256

// level returns the level at which to log the failure of an I/O unit. The same failure is a
// warning only once until there is a session.
func (s *sessions) level(addr string, err error) slog.Level {
	f := failureOf(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.tally.warned[addr]; ok && last == f {
		return slog.LevelDebug
	}
	if s.tally.warned == nil || len(s.tally.warned) >= mostWarned {
		s.tally.warned = make(map[string]failure)
	}
	s.tally.warned[addr] = f
	return slog.LevelWarn
}

// ever returns the number of sessions so far.
func (s *sessions) ever() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tally.sessions
}

// changeHandlers is Host.ChangeHandlers.
func (s *sessions) changeHandlers(ch cq.HandlerChange) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, conn := s.handling.Handling, s.current.conn
	if conn != nil && s.handling.changes == 0 {
		now = conn.Handling() // the session may have fewer queues than requested
	}
	g, err := now.Change(ch)
	if err != nil {
		return err
	}
	if conn != nil {
		// The session may just have ended, which is not an error.
		if err := conn.SetHandling(g); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
	}
	s.handling.Handling = g
	s.handling.changes++
	s.cfg.Log.Info("completion-queue handlers changed", "handlers", g.Handlers, "assigned", g.Assigned)
	return nil
}

// configureHandlers sets the handlers in the configuration of a session, and returns the
// number of changes so far.
func (s *sessions) configureHandlers(c *messaging.Config) (change int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handling.changes > 0 {
		c.SetHandling(s.handling.Handling)
	}
	return s.handling.changes
}

// failover records that the frames of a stopped at a time, for a request if o is not nil, and
// the frames left for the next session. The change began with the request, or otherwise when
// the frames stopped.
func (s *sessions) failover(
	a *attachment, why uplink.Reason, o *switchRequest, stopped time.Time, left *messaging.Unsent,
) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, began := &s.failovers, stopped
	if o != nil {
		f.request, began = o, o.started
	}
	f.Begin(a.addr, why, began, stopped)
	f.Frames(0, left.Uncertain, left.Lost+left.Unrevoked)
	if f.unsent == nil { // otherwise a was never used, and has no frames
		f.unsent = left
	}
}

// takeUnsent returns the frames that the last session had not sent, or nil. If the offloads
// of the new session do not include those of the last one, it cannot send these frames, and
// they are lost.
func (s *sessions) takeUnsent(offloads vnet.Offloads) *messaging.Unsent {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &s.failovers
	left := f.unsent
	f.unsent = nil
	switch {
	case left == nil:
	case offloads.Intersect(f.offloads) != f.offloads:
		f.Frames(0, 0, left.Count())
		return nil
	default:
		f.Frames(left.Count(), 0, 0)
	}
	return left
}

// failedOver records that the frames of a move, and completes the request, if any.
func (s *sessions) failedOver(a *attachment, offloads vnet.Offloads) {
	s.mu.Lock()
	f := &s.failovers
	done, o := f.End(a.addr, a.stages, time.Now()), f.request
	f.request, f.offloads = nil, offloads
	s.mu.Unlock()
	if done != nil && done.From != done.To {
		s.cfg.Log.Info("failed over", "from", done.From, "to", done.To, "reason", done.Reason,
			"took", done.Took, "gap", done.Gap,
			"carried", done.Carried, "uncertain", done.Uncertain, "lost", done.Lost)
	}
	if o != nil {
		o.done <- o.result(a)
	}
}

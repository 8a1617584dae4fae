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
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/vnet"
)

// sessions are the session in use, what is on its way from one to the next, and what
// is known of those that there were. It may be used by any goroutine.
type sessions struct {
	cfg *Config

	mu        sync.Mutex // guards what follows; taken after netdev.mu
	current   current
	handling  handling
	failovers failovers
	tally     tally
}

// current is the session in use.
type current struct {
	state    State
	since    time.Time
	addr     string // of the I/O unit in use, or tried last
	peer     session.Identity
	platform protocol.Platform // of the I/O unit
	welcome  session.Welcome
	conn     *messaging.Conn // nil: there is none
	drain    *drain          // what the I/O unit asks for
}

// handling is which handlers sessions have, the one in use included.
type handling struct {
	messaging.Handling
	changes int
}

// failovers are the books about changes of the session in use, and what they carry over.
type failovers struct {
	uplink.Failovers
	request  *switchRequest    // that the change is for; nil if nobody wanted it
	unsent   *messaging.Unsent // of the last session; nil if it is taken
	offloads vnet.Offloads     // of the session whose frames they are
}

// tally is what has happened since the start.
type tally struct {
	sessions int
	attempts int // failed or ended
	lastErr  error
	// permanent: each I/O unit that was tried last failed for a reason that lasts.
	permanent bool
	warned    map[string]failure // why there is no session with an I/O unit, as logged
	ended     map[string]uint64  // sessions that might not go on: some of Endings
}

// Endings are all reasons by which sessions are counted that the host ended
// because the I/O unit may not go on.
func Endings() []string { return []string{"untrusted", "revoked", "expired"} }

// inUse is the connection of the session in use; nil if there is none.
func (s *sessions) inUse() *messaging.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current.conn
}

// use makes a the session in use, with the handlers that have been chosen while it
// came about. The caller holds netdev.mu.
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
	s.tally.lastErr, s.tally.permanent = nil, false
	clear(s.tally.warned)
	s.tally.sessions++
}

// useNone forgets the session in use.
func (s *sessions) useNone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current.state, s.current.since, s.current.conn = Connecting, time.Now(), nil
}

// setLink enters the link of the I/O unit in use, and reports whether it is another.
func (s *sessions) setLink(l session.Link) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news = s.current.welcome.Link != l
	s.current.welcome.Link = l
	return news
}

// renamed notes by which key the I/O unit in use goes on.
func (s *sessions) renamed(a *attachment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current.conn == a.conn {
		s.current.peer = a.client.Peer()
	}
}

// tried makes an I/O unit the one that was tried last, in vain if there is an
// error.
func (s *sessions) tried(addr string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current.addr = addr
	if err == nil {
		return
	}
	s.tally.lastErr = err
	s.tally.attempts++
	if errors.As(err, new(*session.RevokedError)) {
		if s.tally.ended == nil {
			s.tally.ended = make(map[string]uint64)
		}
		s.tally.ended[session.Reason(err)]++
	}
}

// notePermanent notes whether trying all I/O units again would not help.
func (s *sessions) notePermanent(is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.permanent = is
}

// mostWarned is how many I/O units are remembered of which it was logged why there is no
// session: DNS may name others all the time.
const mostWarned = 256

// level is the level at which to log why there is no session with an I/O unit: an
// administrator wants to read the same failure once, until there was a session.
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

// ever is how many sessions there have been.
func (s *sessions) ever() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tally.sessions
}

// changeHandlers is Host.ChangeHandlers.
func (s *sessions) changeHandlers(ch messaging.HandlerChange) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, conn := s.handling.Handling, s.current.conn
	if conn != nil && s.handling.changes == 0 {
		now = conn.Handling() // which may have fewer queues than were wanted
	}
	g, err := now.Change(ch)
	if err != nil {
		return err
	}
	if conn != nil {
		// A session that has just ended does not matter.
		if err := conn.SetHandling(g); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
	}
	s.handling.Handling = g
	s.handling.changes++
	s.cfg.Log.Info("completion-queue handlers changed", "handlers", g.Handlers, "assigned", g.Assigned)
	return nil
}

// configureHandlers puts the handlers into the configuration of a session, and returns
// which change they are of.
func (s *sessions) configureHandlers(c *messaging.Config) (change int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handling.changes > 0 {
		s.handling.Configure(c)
	}
	return s.handling.changes
}

// failover enters that a's frames stopped, for a request if that is not nil, and what
// they have left for the next session. The change began with the request, or then.
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
	if f.unsent == nil { // otherwise a has never been put to use, and leaves none
		f.unsent = left
	}
}

// takeUnsent takes what the last session has left and the one that the netdevice has
// been configured for can send: frames that were read when the operating system left
// more to the I/O unit are lost. It is nil for none.
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

// failedOver enters that a's frames move, and tells who wanted it.
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

package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/splitnic/splitnic/splitdrv/host/discovery"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
)

// errDrains is the reason for ending a session on standby whose I/O unit is being drained.
var errDrains = errors.New("it refuses hosts during maintenance")

// standby has the session on standby. Any goroutine may use it.
type standby struct {
	*opener
	units *discovery.Directory

	mu sync.Mutex // guards the fields below
	// preparing has an entry for each I/O unit with which a goroutine opens a session on
	// standby, which is closed afterwards. An I/O unit has at most one such session of a
	// host.
	preparing map[string]chan struct{} // by address
	held      *attachment              // nil: none
	reason    error                    // why there is none; nil if unknown or if none is wanted
}

// acquire waits until no other goroutine opens a session on standby with an I/O unit, and
// keeps others from it until release is called.
func (s *standby) acquire(ctx context.Context, addr string) (release func(), err error) {
	for {
		s.mu.Lock()
		busy := s.preparing[addr]
		if busy == nil {
			over := make(chan struct{})
			s.preparing[addr] = over
			s.mu.Unlock()
			return func() {
				s.mu.Lock()
				delete(s.preparing, addr)
				s.mu.Unlock()
				close(over)
			}, nil
		}
		s.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// prepare opens a session on standby with an I/O unit, which the caller has acquired, or
// takes the one that exists.
func (s *standby) prepare(ctx context.Context, addr string) (*attachment, error) {
	if b := s.take(addr); b != nil {
		return b, nil
	}
	d := s.dial(ctx, addr, nil)
	if d.err != nil {
		return nil, d.err
	}
	return s.open(ctx, d, true)
}

// hold makes b the session on standby, unless ctx is done: then another session is in use,
// which has or will get one of its own.
func (s *standby) hold(ctx context.Context, b *attachment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		s.retired.endUnused(b)
		return
	}
	s.retired.endUnused(s.held)
	s.held, s.reason = b, nil
}

// take takes the session on standby, if there is one that has not ended. If addr is not
// uplink.None, the session must be with the I/O unit at addr.
func (s *standby) take(addr string) *attachment {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.held
	if b == nil || !b.lives() || addr != uplink.None && addr != b.addr {
		return nil
	}
	s.held = nil
	return b
}

// unhold removes b if it is still on standby, and reports whether it was. why, which may be
// nil, is recorded as the reason why there is none.
func (s *standby) unhold(b *attachment, why error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held != b {
		return false
	}
	s.held, s.reason = nil, why
	return true
}

// explain records why there is no session on standby; nil: unknown.
func (s *standby) explain(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reason = why
}

// status returns the address of the I/O unit of the session on standby, or why there is
// none.
func (s *standby) status() (addr string, reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.held; b != nil && b.lives() {
		return b.addr, nil
	}
	return "", s.reason
}

// standbyManager carries out the actions of an uplink.Standby. Only one goroutine uses it.
type standbyManager struct {
	*uplink.Standby
	standby   *standby
	inUse     *attachment
	switching *switching
	units     uplink.Candidates
	relisted  <-chan struct{} // closed when the list of I/O units has changed
	ctx       context.Context // context of the manager
	trial     context.Context // context of the sessions that are being opened
	abandon   context.CancelFunc
	results   chan prepared
	pending   int
	ready     map[string]*attachment // opened sessions, by I/O unit
	held      *attachment            // the session on standby, which is watched; nil: none
}

// prepared is the result of opening a session on standby.
type prepared struct {
	addr string
	b    *attachment
	err  error
}

// keep keeps a session on standby while another one is in use, if one is wanted. If the I/O
// unit in use is being drained, it switches to another session. It returns when ctx is done.
func (s *standby) keep(ctx context.Context, inUse *attachment, w *switching) {
	s.explain(nil)
	retry := s.cfg.backoff()
	m := &standbyManager{
		standby: s, inUse: inUse, switching: w,
		ctx: ctx, abandon: func() {}, results: make(chan prepared), ready: make(map[string]*attachment),
	}
	m.units, _, m.relisted = s.units.Units()
	m.Standby = uplink.NewStandby(m.wanted(), s.cfg.FailBack, s.cfg.Patience, &retry)
	defer m.end()
	actions := m.Start(time.Now())
	for actions = append(actions, m.drains()...); ; {
		for len(actions) > 0 {
			more := m.do(actions[0])
			actions = append(actions[1:], more...)
		}
		var hello, conn, drains <-chan struct{}
		if m.held != nil {
			hello, conn, drains = m.held.client.Done(), m.held.conn.Done(), m.held.drain.changed
		}
		select {
		case <-ctx.Done():
			return
		case <-at(m.Wake()):
			actions = m.Tick(time.Now())
		case <-inUse.drain.changed:
			actions = m.drains()
		case <-m.relisted:
			m.units, _, m.relisted = s.units.Units()
			actions = m.follow(m.Leaving())
		case <-drains:
			if m.held.drain.on.Load() {
				actions = m.lost(errDrains)
			}
		case <-hello:
			actions = m.lost(m.held.client.Err())
		case <-conn:
			actions = m.lost(m.held.conn.Err())
		case r := <-m.results:
			actions = m.enter(r)
		}
	}
}

// wanted returns the I/O units with which a session on standby is wanted, while the one in
// use is not being drained.
func (m *standbyManager) wanted() uplink.Wanted {
	cfg := m.standby.cfg
	return m.units.ForStandby(m.inUse.addr, cfg.FailBack > 0, cfg.Standby)
}

// follow passes the present list of I/O units to the state machine. leave says whether the
// I/O unit in use is being drained.
func (m *standbyManager) follow(leave bool) []uplink.Action {
	if leave {
		return m.Leave(time.Now(), m.units.Others(m.inUse.addr))
	}
	return m.Stay(time.Now(), m.wanted())
}

// drains follows a change of the drain request of the I/O unit in use.
func (m *standbyManager) drains() []uplink.Action {
	on := m.inUse.drain.on.Load()
	switch {
	case on == m.Leaving():
		return nil
	case on:
		m.standby.cfg.Log.Info("the I/O unit drains", "iounit", m.inUse.addr)
	default:
		m.standby.cfg.Log.Info("the I/O unit drains no longer", "iounit", m.inUse.addr)
	}
	return m.follow(on)
}

// stays tells the I/O unit in use, which is being drained, why the host does not move.
func (m *standbyManager) stays(why error) {
	cfg, drain, reason := m.standby.cfg, &m.inUse.drain, why.Error()
	level := slog.LevelWarn
	if last := drain.stays.Swap(&reason); last != nil {
		level = slog.LevelDebug
	}
	cfg.Log.Log(m.ctx, level, "the host stays with an I/O unit that drains", "iounit", m.inUse.addr, "error", why)
	if err := m.inUse.client.Stays(reason, cfg.handover()); err != nil {
		cfg.Log.Debug("the I/O unit is not told", "iounit", m.inUse.addr, "error", err) // the session ends
	}
}

// do carries out an action, and returns the actions that follow.
func (m *standbyManager) do(a uplink.Action) []uplink.Action {
	switch a.Do {
	case uplink.Prepare:
		if m.pending == 0 {
			m.abandon()
			m.trial, m.abandon = context.WithCancel(m.ctx)
		}
		m.pending++
		go m.prepare(m.trial, a.Unit)
	case uplink.AbandonAll:
		m.abandon()
	case uplink.Hold:
		m.held = m.ready[a.Unit]
		delete(m.ready, a.Unit)
		m.standby.hold(m.ctx, m.held)
	case uplink.Retire:
		m.standby.retired.endUnused(m.ready[a.Unit])
		delete(m.ready, a.Unit)
	case uplink.Drop:
		m.drop(nil)
	case uplink.Switch:
		b, reason := m.held, uplink.ReasonFailBack
		if m.Leaving() {
			reason = uplink.ReasonDrain
		}
		m.held = nil
		if m.standby.unhold(b, nil) {
			err := m.switching.submit(m.ctx, newSwitchRequest(b.addr, b, reason))
			if err != nil && m.ctx.Err() == nil {
				m.standby.cfg.Log.Warn("not gone over to another I/O unit", "iounit", b.addr, "for", reason, "error", err)
			}
		}
		return m.Ended(time.Now())
	case uplink.Report:
		unit, err := m.Why()
		if err != nil {
			err = fmt.Errorf("the I/O unit at %s: %w", unit, err)
			m.standby.explain(err)
		}
		if m.Leaving() {
			m.stays(cmp.Or(err, uplink.ErrNoOther))
		}
	default: // actions of a race
	}
	return nil
}

// prepare opens a session on standby, and sends the result.
func (m *standbyManager) prepare(ctx context.Context, addr string) {
	release, err := m.standby.acquire(ctx, addr)
	if err != nil {
		m.results <- prepared{addr, nil, err}
		return
	}
	b, err := m.standby.prepare(ctx, addr)
	release()
	m.results <- prepared{addr, b, err}
}

// enter handles the result of prepare.
func (m *standbyManager) enter(r prepared) []uplink.Action {
	m.pending--
	if r.err == nil {
		m.ready[r.addr] = r.b
		return m.Prepared(time.Now(), r.addr)
	}
	if m.trial.Err() == nil {
		cfg, level := m.standby.cfg, slog.LevelDebug
		if cfg.Standby {
			level = m.standby.sessions.level(r.addr, r.err)
		}
		cfg.Log.Log(m.ctx, level, "no session on standby", "iounit", r.addr, "error", r.err)
	}
	return m.PrepareFailed(time.Now(), r.addr, r.err)
}

// lost records that the session on standby has ended, and why.
func (m *standbyManager) lost(why error) []uplink.Action {
	m.drop(fmt.Errorf("the I/O unit at %s: %w", m.held.addr, why))
	return m.Ended(time.Now())
}

// drop ends the session on standby, unless another goroutine has taken it. why may be nil.
func (m *standbyManager) drop(why error) {
	if b := m.held; b != nil && m.standby.unhold(b, why) {
		m.standby.retired.endUnused(b)
	}
	m.held = nil
}

// end ends all sessions that the manager has opened and nobody has taken.
func (m *standbyManager) end() {
	m.abandon()
	for ; m.pending > 0; m.pending-- {
		if r := <-m.results; r.err == nil {
			m.ready[r.addr] = r.b
		}
	}
	for _, b := range m.ready {
		m.standby.retired.endUnused(b)
	}
	m.drop(nil)
}

// at returns a channel that receives at the time due, or nil if due is zero.
func at(due time.Time) <-chan time.Time {
	if due.IsZero() {
		return nil
	}
	return time.After(time.Until(due))
}

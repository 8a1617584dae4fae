package host

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/splitnic/splitnic/internal/wake"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// errDrains is the reason for ending a session on standby whose I/O unit is being drained.
var errDrains = errors.New("it refuses hosts during maintenance")

// standby keeps a session on standby while another session is in use. If the I/O unit in use is
// being drained, or a preferred one is reachable, it switches to another session.
//
// The sessions that it has opened are in its state machine, and nowhere else. One leaves it in
// one of three ways, and belongs to the receiver from then on:
//
//   - End: do ends it. The machine says so when the session has ended or its I/O unit drains (lost),
//     when that is wanted no longer (follow), when another session is kept instead (enter), and when
//     keep returns (end).
//   - Switch: switchTo submits it for use. If that fails, it is ended there.
//   - take and stop: the caller uses it or ends it.
type standby struct {
	*opener
	inUse     *attachment
	switching *switching
	taken     chan struct{} // signaled when the session on standby was taken; capacity one
	ctx       context.Context
	cancel    context.CancelFunc // makes keep return

	mu      sync.Mutex                   // guards the fields below
	machine *uplink.Standby[*attachment] // Held and Take are for any goroutine, the rest for keep
	reason  error                        // why there is no session; nil if unknown or if none is wanted

	// Only keep uses the fields below.
	candidates uplink.Candidates
	relisted   <-chan struct{} // closed when the list of I/O units has changed
	trial      context.Context // context of the sessions that are being opened
	abandon    context.CancelFunc
	results    chan prepared
	pending    int
}

// prepared is the result of opening a session on standby.
type prepared struct {
	addr string
	b    *attachment
	err  error
}

type standbyAction = uplink.StandbyAction[*attachment]

// newStandby returns a standby that does nothing before keep.
func newStandby(ctx context.Context, o *opener, inUse *attachment, w *switching) *standby {
	s := &standby{
		opener: o, inUse: inUse, switching: w, taken: make(chan struct{}, 1),
		abandon: func() {}, results: make(chan prepared),
	}
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.candidates, _, s.relisted = o.units.Units()
	retry := o.cfg.backoff()
	s.machine = uplink.NewStandby[*attachment](s.wanted(), o.cfg.FailBack, o.cfg.Patience, &retry)
	return s
}

// take takes the session on standby, if there is one that has not ended. If addr is not
// uplink.None, the session must be with the I/O unit at addr.
func (s *standby) take(addr string) *attachment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeHeld(addr)
}

// stop makes keep return, and takes the session on standby before keep ends it, if there is one
// that has not ended.
func (s *standby) stop() *attachment {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel()
	return s.takeHeld(uplink.None)
}

// takeHeld is take. The caller holds mu.
func (s *standby) takeHeld(addr string) *attachment {
	b := s.machine.Held()
	if b == nil || !b.lives() || addr != uplink.None && addr != b.addr {
		return nil
	}
	wake.Up(s.taken)
	return s.machine.Take()
}

// status returns the address of the I/O unit of the session on standby, or why there is
// none.
func (s *standby) status() (addr string, reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.machine.Held(); b != nil && b.lives() {
		return b.addr, nil
	}
	return "", s.reason
}

// keep returns when its context is done, or after stop.
func (s *standby) keep() {
	s.event(s.machine.Start)
	s.drains()
	for s.ctx.Err() == nil {
		held, wake := s.next()
		var hello, conn, drains <-chan struct{}
		if held != nil {
			hello, conn, drains = held.client.Done(), held.conn.Done(), held.drain.changed
		}
		select {
		case <-s.ctx.Done():
		case <-at(wake):
			s.event(s.machine.Tick)
		case <-s.taken:
			s.event(s.machine.Resume)
		case <-s.inUse.drain.changed:
			s.drains()
		case <-s.relisted:
			s.candidates, _, s.relisted = s.units.Units()
			s.follow(s.machine.Leaving())
		case <-drains:
			if held.drain.on.Load() {
				s.lost(held, errDrains)
			}
		case <-hello:
			s.lost(held, held.client.Err())
		case <-conn:
			s.lost(held, held.conn.Err())
		case r := <-s.results:
			s.enter(r)
		}
	}
	s.end()
}

// next returns the session on standby, or nil, and when the state machine wants to be woken.
func (s *standby) next() (held *attachment, wake time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine.Held(), s.machine.Wake()
}

// event passes an event to the state machine, and carries out its actions.
func (s *standby) event(happens func(now time.Time) []standbyAction) {
	s.mu.Lock()
	actions := happens(time.Now())
	s.mu.Unlock()
	for _, a := range actions {
		s.do(a)
	}
}

func (s *standby) do(a standbyAction) {
	switch a.Do {
	case uplink.Prepare:
		if s.pending == 0 {
			s.abandon()
			s.trial, s.abandon = context.WithCancel(s.ctx)
		}
		s.pending++
		go s.attempt(s.trial, a.Unit)
	case uplink.AbandonAll:
		s.abandon()
	case uplink.End:
		s.retired.endUnused(a.Session)
	case uplink.Switch:
		s.switchTo(a.Session)
	case uplink.Report:
		s.report()
	}
}

// attempt opens a session on standby, and sends the result.
func (s *standby) attempt(ctx context.Context, addr string) {
	release, err := s.reserve(ctx, addr)
	if err != nil {
		s.results <- prepared{addr, nil, err}
		return
	}
	b, err := s.openStandby(ctx, addr)
	release()
	s.results <- prepared{addr, b, err}
}

// enter handles the result of attempt.
func (s *standby) enter(r prepared) {
	s.pending--
	if r.err != nil && s.trial.Err() == nil {
		level := slog.LevelDebug
		if s.cfg.Standby {
			level = s.sessions.level(r.addr, r.err)
		}
		s.cfg.Log.Log(s.ctx, level, "no session on standby", "iounit", r.addr, "error", r.err)
	}
	s.event(func(now time.Time) []standbyAction {
		if r.err == nil {
			s.reason = nil
		}
		return s.machine.Prepared(now, r.addr, r.b, r.err)
	})
}

// lost records that b, the session on standby, has ended, and why, unless it was taken.
func (s *standby) lost(b *attachment, why error) {
	s.event(func(now time.Time) []standbyAction {
		if s.machine.Held() != b {
			return nil
		}
		s.reason = fmt.Errorf("the I/O unit at %s: %w", b.addr, why)
		return s.machine.Ended(now)
	})
}

func (s *standby) switchTo(b *attachment) {
	reason := uplink.ReasonFailBack
	if s.machine.Leaving() {
		reason = uplink.ReasonDrain
	}
	err := s.switching.submit(s.ctx, newSwitchRequest(b.addr, b, reason))
	if err != nil && s.ctx.Err() == nil {
		s.cfg.Log.Warn("not gone over to another I/O unit", "iounit", b.addr, "for", reason, "error", err)
	}
	s.event(s.machine.Resume)
}

// report records why there is no session on standby. If the I/O unit in use is being drained, it
// is told.
func (s *standby) report() {
	unit, err := s.machine.Why()
	if err != nil {
		err = fmt.Errorf("the I/O unit at %s: %w", unit, err)
		s.mu.Lock()
		s.reason = err
		s.mu.Unlock()
	}
	if s.machine.Leaving() {
		s.stays(cmp.Or(err, uplink.ErrNoOther))
	}
}

// stays tells the I/O unit in use, which is being drained, why the host does not move.
func (s *standby) stays(why error) {
	drain, reason := &s.inUse.drain, why.Error()
	level := slog.LevelWarn
	if last := drain.stays.Swap(&reason); last != nil {
		level = slog.LevelDebug
	}
	s.cfg.Log.Log(s.ctx, level, "the host stays with an I/O unit that drains", "iounit", s.inUse.addr, "error", why)
	if err := s.inUse.client.Stays(reason, s.cfg.handover()); err != nil {
		s.cfg.Log.Debug("the I/O unit is not told", "iounit", s.inUse.addr, "error", err) // the session ends
	}
}

// wanted returns the I/O units with which a session on standby is wanted, while the one in
// use is not being drained.
func (s *standby) wanted() uplink.Wanted {
	return s.candidates.ForStandby(s.inUse.addr, s.cfg.FailBack > 0, s.cfg.Standby)
}

// drains follows a change of the drain request of the I/O unit in use.
func (s *standby) drains() {
	on := s.inUse.drain.on.Load()
	switch {
	case on == s.machine.Leaving():
		return
	case on:
		s.cfg.Log.Info("the I/O unit drains", "iounit", s.inUse.addr)
	default:
		s.cfg.Log.Info("the I/O unit drains no longer", "iounit", s.inUse.addr)
	}
	s.follow(on)
}

// follow passes the present list of I/O units to the state machine. leave says whether the
// I/O unit in use is being drained.
func (s *standby) follow(leave bool) {
	s.event(func(now time.Time) []standbyAction {
		if leave {
			return s.machine.Leave(now, s.candidates.Others(s.inUse.addr))
		}
		return s.machine.Stay(now, s.wanted())
	})
}

// end ends all sessions that nobody has taken, also those that are still being opened.
func (s *standby) end() {
	s.event(func(now time.Time) []standbyAction { return s.machine.Stay(now, uplink.Wanted{}) })
	for s.pending > 0 {
		s.enter(<-s.results)
	}
}

// raise makes the I/O unit of a session that was on standby set the host's LAN interface up, if
// the netdevice is up, and announce it in the LAN. If that fails, it ends the session.
func (o *opener) raise(ctx context.Context, b *attachment) bool {
	ctx, cancel := context.WithTimeout(ctx, o.cfg.handover())
	defer cancel()
	err := o.setPort(ctx, b)
	if err != nil {
		o.cfg.Log.Warn("the session on standby cannot be used", "iounit", b.addr, "error", err)
		o.retired.end(b, session.CodeFailed, "it cannot be used")
	}
	return err == nil
}

func (o *opener) setPort(ctx context.Context, b *attachment) error {
	if !b.lives() {
		return errors.New("it has ended")
	}
	o.dev.mu.Lock()
	mac := b.welcome.MAC
	state, err := o.dev.State()
	o.dev.mu.Unlock()
	if err != nil {
		return o.dev.gone(err)
	}
	if !bytes.Equal(state.MAC, mac[:]) {
		return fmt.Errorf("it has MAC address %v, the netdevice %v", mac, state.MAC)
	}
	_, err = b.conn.Request(ctx, protocol.CfgLinkState, protocol.AppendLinkState(nil, protocol.LinkState{Up: state.Up}))
	return err
}

// at returns a channel that receives at the time due, or nil if due is zero.
func at(due time.Time) <-chan time.Time {
	if due.IsZero() {
		return nil
	}
	return time.After(time.Until(due))
}

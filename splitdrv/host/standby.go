package host

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// standby is the session on standby. It is guarded by Host.mu.
type standby struct {
	a      *attachment // nil: none
	reason error       // why there is none; nil if that is not known, or it is not wanted
}

// standbyManager carries out an uplink.Standby. It belongs to one goroutine.
type standbyManager struct {
	*uplink.Standby
	h       *Host
	ctx     context.Context // of the manager
	trial   context.Context // of the sessions that are being prepared
	abandon context.CancelFunc
	results chan prepared
	pending int
	ready   map[int]*attachment // prepared, by I/O unit
	held    *attachment         // to be watched; nil: none
}

// prepared is what has become of a session on standby.
type prepared struct {
	unit int
	b    *attachment
	err  error
}

// keepStandby keeps a session on standby while the one with an I/O unit is in use. It
// returns when ctx is done.
func (h *Host) keepStandby(ctx context.Context, unit int) {
	h.noStandby(nil)
	list := h.units.ForStandby(unit, h.cfg.FailBack > 0, h.cfg.Standby)
	if len(list) == 0 {
		return
	}
	retry := h.cfg.backoff()
	m := &standbyManager{
		Standby: uplink.NewStandby(list, unit, h.cfg.FailBack, h.cfg.Patience, &retry),
		h:       h, ctx: ctx, abandon: func() {}, results: make(chan prepared), ready: make(map[int]*attachment),
	}
	defer m.end()
	for actions := m.Start(time.Now()); ; {
		for len(actions) > 0 {
			more := m.do(actions[0])
			actions = append(actions[1:], more...)
		}
		var hello, conn <-chan struct{}
		if m.held != nil {
			hello, conn = m.held.client.Done(), m.held.conn.Done()
		}
		select {
		case <-ctx.Done():
			return
		case <-at(m.Wake()):
			actions = m.Tick(time.Now())
		case <-hello:
			actions = m.lost(m.held.client.Err())
		case <-conn:
			actions = m.lost(m.held.conn.Err())
		case r := <-m.results:
			actions = m.enter(r)
		}
	}
}

// do carries out what was decided, and returns what follows from it.
func (m *standbyManager) do(a uplink.Action) []uplink.Action {
	switch a.Do {
	case uplink.Prepare:
		if m.pending == 0 {
			m.abandon()
			m.trial, m.abandon = context.WithCancel(m.ctx)
		}
		m.pending++
		trial := m.trial
		go func() {
			b, err := m.h.prepare(trial, a.Unit)
			m.results <- prepared{a.Unit, b, err}
		}()
	case uplink.AbandonAll:
		m.abandon()
	case uplink.Hold:
		m.held = m.ready[a.Unit]
		delete(m.ready, a.Unit)
		m.h.hold(m.ctx, m.held)
	case uplink.Retire:
		m.h.retire(m.ready[a.Unit], session.CodeShuttingDown, notNeeded)
		delete(m.ready, a.Unit)
	case uplink.Drop:
		m.drop()
	case uplink.FailBack:
		b := m.held
		m.held = nil
		if m.h.unhold(b) {
			o := &switchRequest{unit: b.unit, to: b, reason: uplink.ReasonFailBack, started: time.Now(),
				done: make(chan error, 1)}
			if err := m.h.submit(m.ctx, o); err != nil && m.ctx.Err() == nil {
				m.h.cfg.Log.Warn("not gone back to the preferred I/O unit", "iounit", b.addr, "reason", err)
			}
		}
		return m.Ended(time.Now())
	case uplink.Report:
		if unit, err := m.Why(); err != nil {
			m.h.noStandby(fmt.Errorf("the I/O unit at %s: %w", m.h.units[unit], err))
		}
	default: // a race's
	}
	return nil
}

// enter enters what has become of a session that was prepared.
func (m *standbyManager) enter(r prepared) []uplink.Action {
	m.pending--
	if r.err != nil {
		if m.trial.Err() == nil {
			level := slog.LevelDebug
			if m.h.cfg.Standby {
				level = m.h.level(r.unit, r.err)
			}
			m.h.cfg.Log.Log(m.ctx, level, "no session on standby", "iounit", m.h.units[r.unit], "reason", r.err)
		}
		return m.PrepareFailed(time.Now(), r.unit, r.err)
	}
	m.ready[r.unit] = r.b
	return m.Prepared(time.Now(), r.unit)
}

// lost enters why the session on standby has ended: there is none until the next one
// has been made, or not.
func (m *standbyManager) lost(why error) []uplink.Action {
	m.h.mu.Lock()
	if s := &m.h.standby; s.a == m.held {
		s.reason = fmt.Errorf("the I/O unit at %s: %w", m.held.addr, why)
	}
	m.h.mu.Unlock()
	m.drop()
	return m.Ended(time.Now())
}

// drop retires the session on standby, if nobody has taken it.
func (m *standbyManager) drop() {
	if b := m.held; b != nil && m.h.unhold(b) {
		m.h.retire(b, session.CodeShuttingDown, notNeeded)
	}
	m.held = nil
}

// end ends what the manager has begun.
func (m *standbyManager) end() {
	m.abandon()
	for ; m.pending > 0; m.pending-- {
		if r := <-m.results; r.err == nil {
			m.ready[r.unit] = r.b
		}
	}
	for _, b := range m.ready {
		m.h.retire(b, session.CodeShuttingDown, notNeeded)
	}
	m.drop()
}

const notNeeded = "it is not needed"

// noStandby notes why there is no session on standby, for the status; nil if that is
// not known.
func (h *Host) noStandby(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.standby.reason = why
}

// hold makes b the session on standby, unless ctx is done: then another session has
// one, or will have.
func (h *Host) hold(ctx context.Context, b *attachment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	unused := h.standby.a
	if ctx.Err() != nil {
		unused = b
	} else {
		h.standby = standby{a: b}
	}
	if unused != nil {
		h.retire(unused, session.CodeShuttingDown, notNeeded)
	}
}

// take takes the session on standby, if there is one that lives and, unless unit is
// uplink.None, is with that I/O unit.
func (h *Host) take(unit int) *attachment {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.standby.a
	if b == nil || !b.lives() || unit != uplink.None && unit != b.unit {
		return nil
	}
	h.standby.a = nil
	return b
}

// unhold takes b if it is still on standby, and reports whether it was.
func (h *Host) unhold(b *attachment) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.standby.a != b {
		return false
	}
	h.standby.a = nil
	return true
}

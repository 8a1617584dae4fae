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

// keeper carries out an uplink.Standby. It belongs to one goroutine.
type keeper struct {
	*uplink.Standby
	h       *Host
	ctx     context.Context // of the keeper
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
	k := &keeper{
		Standby: uplink.NewStandby(list, unit, h.cfg.FailBack, h.cfg.Patience, &retry),
		h:       h, ctx: ctx, abandon: func() {}, results: make(chan prepared), ready: make(map[int]*attachment),
	}
	defer k.end()
	for actions := k.Start(time.Now()); ; {
		for len(actions) > 0 {
			more := k.do(actions[0])
			actions = append(actions[1:], more...)
		}
		var hello, conn <-chan struct{}
		if k.held != nil {
			hello, conn = k.held.client.Done(), k.held.conn.Done()
		}
		select {
		case <-ctx.Done():
			return
		case <-at(k.Wake()):
			actions = k.Tick(time.Now())
		case <-hello:
			actions = k.lost(k.held.client.Err())
		case <-conn:
			actions = k.lost(k.held.conn.Err())
		case r := <-k.results:
			actions = k.enter(r)
		}
	}
}

// do carries out what was decided, and returns what follows from it.
func (k *keeper) do(a uplink.Action) []uplink.Action {
	switch a.Do {
	case uplink.Prepare:
		if k.pending == 0 {
			k.abandon()
			k.trial, k.abandon = context.WithCancel(k.ctx)
		}
		k.pending++
		trial := k.trial
		go func() {
			b, err := k.h.prepare(trial, a.Unit)
			k.results <- prepared{a.Unit, b, err}
		}()
	case uplink.AbandonAll:
		k.abandon()
	case uplink.Hold:
		k.held = k.ready[a.Unit]
		delete(k.ready, a.Unit)
		k.h.hold(k.ctx, k.held)
	case uplink.Retire:
		k.h.retire(k.ready[a.Unit], session.CodeShuttingDown, notNeeded)
		delete(k.ready, a.Unit)
	case uplink.Drop:
		k.drop()
	case uplink.FailBack:
		b := k.held
		k.held = nil
		if k.h.unhold(b) {
			o := &switchRequest{unit: b.unit, to: b, reason: uplink.ReasonFailBack, started: time.Now(),
				done: make(chan error, 1)}
			if err := k.h.submit(k.ctx, o); err != nil && k.ctx.Err() == nil {
				k.h.cfg.Log.Warn("not gone back to the preferred I/O unit", "iounit", b.addr, "reason", err)
			}
		}
		return k.Ended(time.Now())
	case uplink.Report:
		if unit, err := k.Why(); err != nil {
			k.h.noStandby(fmt.Errorf("the I/O unit at %s: %w", k.h.units[unit], err))
		}
	default: // a race's
	}
	return nil
}

// enter enters what has become of a session that was prepared.
func (k *keeper) enter(r prepared) []uplink.Action {
	k.pending--
	if r.err != nil {
		if k.trial.Err() == nil {
			level := slog.LevelDebug
			if k.h.cfg.Standby {
				level = k.h.level(r.unit, r.err)
			}
			k.h.cfg.Log.Log(k.ctx, level, "no session on standby", "iounit", k.h.units[r.unit], "reason", r.err)
		}
		return k.PrepareFailed(time.Now(), r.unit, r.err)
	}
	k.ready[r.unit] = r.b
	return k.Prepared(time.Now(), r.unit)
}

// lost enters why the session on standby has ended: there is none until the next one
// has been made, or not.
func (k *keeper) lost(why error) []uplink.Action {
	k.h.mu.Lock()
	if s := &k.h.standby; s.a == k.held {
		s.reason = fmt.Errorf("the I/O unit at %s: %w", k.held.addr, why)
	}
	k.h.mu.Unlock()
	k.drop()
	return k.Ended(time.Now())
}

// drop retires the session on standby, if nobody has taken it.
func (k *keeper) drop() {
	if b := k.held; b != nil && k.h.unhold(b) {
		k.h.retire(b, session.CodeShuttingDown, notNeeded)
	}
	k.held = nil
}

// end ends what the keeper has begun.
func (k *keeper) end() {
	k.abandon()
	for ; k.pending > 0; k.pending-- {
		if r := <-k.results; r.err == nil {
			k.ready[r.unit] = r.b
		}
	}
	for _, b := range k.ready {
		k.h.retire(b, session.CodeShuttingDown, notNeeded)
	}
	k.drop()
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

package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/splitnic/splitnic/splitdrv/session"
)

// keepReserve keeps a session on standby while the one with an I/O unit is in
// use: with a preferred one, to go back to it when it has lived long enough, or
// else with the next one. It returns when ctx is done.
func (h *Host) keepReserve(ctx context.Context, unit int) {
	able := h.reservable(unit)
	h.unreserved(nil)
	retry := backoff{min: h.cfg.RetryMin, max: h.cfg.RetryMax, rand: h.cfg.Rand}
	for len(able) > 0 && ctx.Err() == nil {
		b, useless, err := h.prepareFirst(ctx, able)
		able = without(able, useless)
		if b == nil {
			h.unreserved(err)
			select {
			case <-time.After(retry.failed()):
			case <-ctx.Done():
			}
			continue
		}
		if !h.hold(ctx, b) {
			return
		}
		began := time.Now()
		h.await(ctx, b, unit, able)
		if ctx.Err() != nil {
			return
		}
		select {
		case <-time.After(retry.ended(time.Since(began))):
		case <-ctx.Done():
		}
	}
}

// reservable are the I/O units that a session on standby may be with, while one
// of them is in use, in order.
func (h *Host) reservable(unit int) (able []int) {
	if h.cfg.FailBack > 0 {
		for i := range unit {
			able = append(able, i)
		}
	}
	if h.cfg.Standby {
		for _, i := range sequence(len(h.cfg.IOUnits), unit) {
			if i != unit && (h.cfg.FailBack == 0 || i > unit) {
				able = append(able, i)
			}
		}
	}
	return able
}

func without(list []int, drop []int) []int {
	kept := list[:0:0]
	for _, i := range list {
		useless := false
		for _, d := range drop {
			useless = useless || d == i
		}
		if !useless {
			kept = append(kept, i)
		}
	}
	return kept
}

// prepared is what has become of a session on standby.
type prepared struct {
	at  int // in the list of those to try
	b   *attachment
	err error
}

// prepareFirst makes a session on standby with the first I/O unit of a list that
// can be had, or says why not with the first of them. One that is silent for
// longestSilence has the next one tried as well; whichever is there first is it.
// Those that know no standby are useless.
func (h *Host) prepareFirst(ctx context.Context, list []int) (found *attachment, useless []int, first error) {
	trying, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan prepared)
	errs := make([]error, len(list))
	started, pending := 0, 0
	patience := time.NewTicker(h.patient(longestSilence))
	defer patience.Stop()
	next := func() {
		if started < len(list) && trying.Err() == nil {
			at := started
			started++
			pending++
			patience.Reset(h.patient(longestSilence))
			go func() {
				b, err := h.prepare(trying, list[at])
				results <- prepared{at, b, err}
			}()
		}
	}
	for next(); pending > 0; {
		select {
		case <-patience.C:
			next()
		case r := <-results:
			pending--
			switch {
			case r.err == nil && found == nil:
				found = r.b
				cancel()
			case r.err == nil:
				h.retire(r.b, session.CodeShuttingDown, "it is not needed")
			case trying.Err() == nil:
				errs[r.at] = r.err
				h.unprepared(ctx, list[r.at], r.err)
				next()
			}
		}
	}
	for at, err := range errs {
		if err != nil && first == nil {
			first = fmt.Errorf("the I/O unit at %s: %w", h.cfg.IOUnits[list[at]], err)
		}
		if errors.Is(err, errNoStandby) {
			useless = append(useless, list[at])
		}
	}
	return found, useless, first
}

// unprepared logs why there is no session on standby with an I/O unit.
func (h *Host) unprepared(ctx context.Context, unit int, err error) {
	level := slog.LevelDebug
	if h.cfg.Standby {
		level = h.level(unit, err)
	}
	h.cfg.Log.Log(ctx, level, "no session on standby", "iounit", h.cfg.IOUnits[unit], "reason", err)
}

// unreserved notes why there is no session on standby, for the status; nil if
// that is not known.
func (h *Host) unreserved(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noReserve = why
}

// bereave notes why b, which is on standby, has ended: there is none until the next
// one has been made, or not.
func (h *Host) bereave(b *attachment, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reserve == b {
		h.noReserve = fmt.Errorf("the I/O unit at %s: %w", b.addr, why)
	}
}

// hold makes b the session on standby, unless ctx is done.
func (h *Host) hold(ctx context.Context, b *attachment) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil {
		h.retire(b, session.CodeShuttingDown, "it is not needed")
		return false
	}
	h.reserve, h.noReserve = b, nil
	return true
}

// take takes the session on standby, if there is one and it lives.
func (h *Host) take() *attachment {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.reserve
	if b == nil || !b.lives() {
		return nil
	}
	h.reserve = nil
	return b
}

// unhold takes b if it is still on standby, and reports whether it was.
func (h *Host) unhold(b *attachment) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reserve != b {
		return false
	}
	h.reserve = nil
	return true
}

// drop retires b if it is still on standby.
func (h *Host) drop(b *attachment) {
	if h.unhold(b) {
		h.retire(b, session.CodeShuttingDown, "it is not needed")
	}
}

// await waits until a session on standby is of no use any more: it has ended, or
// ctx is done, or it is time to go back and that has been tried, or a preferred
// I/O unit can be had.
func (h *Host) await(ctx context.Context, b *attachment, unit int, able []int) {
	var back, better <-chan time.Time
	if h.cfg.FailBack > 0 && b.unit < unit {
		t := time.NewTimer(h.cfg.FailBack)
		defer t.Stop()
		back = t.C
	}
	if h.cfg.FailBack > 0 && unit > 0 && b.unit != able[0] && able[0] < unit {
		t := time.NewTicker(h.cfg.RetryMax)
		defer t.Stop()
		better = t.C
	}
	for {
		select {
		case <-ctx.Done():
		case <-b.client.Done():
			h.bereave(b, b.client.Err())
		case <-b.conn.Done():
			h.bereave(b, b.conn.Err())
		case <-better:
			p := h.prepareBetter(ctx, b, preferred(able, b.unit))
			if p == nil {
				continue
			}
			h.drop(b)
			if h.hold(ctx, p) {
				h.await(ctx, p, unit, able)
			}
			return
		case <-back:
			if !h.unhold(b) {
				return
			}
			o := &order{unit: b.unit, to: b, reason: ReasonFailBack, started: time.Now(), done: make(chan error, 1)}
			if err := h.submit(ctx, o); err != nil && ctx.Err() == nil {
				h.cfg.Log.Warn("not gone back to the preferred I/O unit", "iounit", b.addr, "reason", err)
			}
			return
		}
		h.drop(b)
		return
	}
}

// prepareBetter is prepareFirst for as long as another session on standby lives.
func (h *Host) prepareBetter(ctx context.Context, than *attachment, list []int) *attachment {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		select {
		case <-than.client.Done():
		case <-than.conn.Done():
		case <-ctx.Done():
		}
	}()
	p, _, _ := h.prepareFirst(ctx, list)
	return p
}

// preferred are those of a list that come before one of them.
func preferred(list []int, one int) []int {
	for i, x := range list {
		if x == one {
			return list[:i]
		}
	}
	return list
}

package host

import (
	"context"
	"errors"
	"time"

	"github.com/splitnic/splitnic/splitdrv/session"
)

// An I/O unit that has been dialled and then says nothing, because its process
// hangs or its machine has just died, has longestSilence for each of its answers,
// or silences times as long as it took to connect and authenticate if that is
// more, as under emulation. Then the next one is dialled, and gets the session if
// it can be had sooner.
const (
	longestSilence = 2 * time.Second
	silences       = 10
)

// errOvertaken is why an attempt to open a session was given up.
var errOvertaken = errors.New("no answer for a while, and another I/O unit can be had")

// race looks for the first I/O unit with which a session comes about. It belongs
// to one goroutine.
type race struct {
	h       *Host
	order   []int
	started int // of order
	dialing int // at present

	dctx     context.Context // of dials
	dials    chan dialled
	answered chan struct{} // told that a machine has answered a dial; of capacity one
	head     *time.Ticker  // until the next one is dialled as well

	// Those that may just be restarting do not wait until nothing comes of the
	// others, which can take as long as a handshake may.
	retry *backoff
	away  []int            // such I/O units
	again <-chan time.Time // tells when to dial them again; nil if nobody waits

	ready []dialled // wait for the session that is being opened
	// One at a time changes the netdevice: opening is that session's, nil if there
	// is none, and silent says that nothing was heard for long.
	opening  *attempt
	heard    chan struct{} // told of each answer
	patience *time.Timer
	silent   bool

	permanent  []error
	restarting bool // all that have failed may be there again at any moment
}

// attempt is a session that is being opened.
type attempt struct {
	d      dialled
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when there are the following
	a      *attachment
	err    error
}

// reach tries the I/O units in that order and returns the first session that
// comes about. If none does it reports whether all of them may just be
// restarting. It returns an error if there is no point in trying again.
func (h *Host) reach(ctx context.Context, order []int, retry *backoff) (a *attachment, restarting bool, err error) {
	dctx, cancel := context.WithCancel(ctx)
	r := &race{
		h: h, order: order, dctx: dctx, dials: make(chan dialled), answered: make(chan struct{}, 1),
		head: time.NewTicker(h.patient(headStart)), heard: make(chan struct{}, 1), patience: time.NewTimer(h.patient(longestSilence)),
		restarting: true, retry: retry,
	}
	defer func() {
		cancel()
		r.head.Stop()
		r.patience.Stop()
		h.past.add(r.dismiss)
	}()
	r.dial()
	a, err = r.run(ctx)
	if a != nil || err != nil || ctx.Err() != nil {
		return a, false, err
	}
	if err := h.dev.dropOldCarrier(); errors.Is(err, ErrNetdeviceGone) {
		return nil, false, err
	}
	if h.ever() == 0 && len(r.permanent) == len(h.cfg.IOUnits) {
		return nil, false, errors.Join(r.permanent...)
	}
	return nil, r.restarting, nil
}

// run returns when there is a session, or no I/O unit left to try, or ctx is done,
// or the netdevice is gone, which is the error.
func (r *race) run(ctx context.Context) (*attachment, error) {
	for r.dialing > 0 || r.opening != nil {
		if len(r.away) > 0 && r.again == nil && r.hurried() {
			r.again = time.After(r.retry.restarting())
		}
		select {
		case <-r.head.C:
			r.dial()
		case <-r.answered:
			if r.hurried() {
				r.head.Reset(r.h.patient(answerStart))
			}
		case <-r.again:
			r.again = nil
			if r.hurried() {
				for _, unit := range r.away {
					r.call(unit, true)
				}
				r.away = nil
			}
		case <-r.heard:
			r.wait()
		case <-r.patience.C:
			if r.opening != nil {
				r.silent = true
				r.next()
			}
		case d := <-r.dials:
			r.dialing--
			if d.err != nil {
				r.failed(d.unit, d.err)
				if !d.again { // else the others have their head start
					r.proceed()
				}
			} else {
				r.ready = append(r.ready, d)
			}
		case <-r.result():
			o := r.opening
			r.opening = nil
			if a, err := r.opened(ctx, o); a != nil || err != nil {
				return a, err
			}
		}
		r.advance(ctx)
		if ctx.Err() != nil && r.opening == nil {
			return nil, nil
		}
	}
	return nil, nil
}

// advance opens a session with the first I/O unit that is ready, when none is
// being opened, or gives up the one that is, when nothing is heard from it.
func (r *race) advance(ctx context.Context) {
	switch {
	case len(r.ready) == 0:
	case r.opening != nil:
		if r.silent {
			r.opening.cancel(errOvertaken)
		}
	case ctx.Err() == nil:
		d := r.ready[0]
		r.ready = r.ready[1:]
		r.open(ctx, d)
	}
}

// dial dials the next I/O unit, if there is one.
func (r *race) dial() {
	if r.started < len(r.order) {
		r.started++
		r.call(r.order[r.started-1], false)
	}
}

// call dials an I/O unit, for the first time or again.
func (r *race) call(unit int, again bool) {
	r.dialing++
	go func() {
		d := r.h.dial(r.dctx, unit, r.answered)
		d.again = again
		r.dials <- d
	}()
}

// open has a session opened.
func (r *race) open(ctx context.Context, d dialled) {
	ctx, cancel := context.WithCancelCause(ctx)
	o := &attempt{d: d, cancel: cancel, done: make(chan struct{})}
	o.d.heard = func() {
		select {
		case r.heard <- struct{}{}:
		default:
		}
	}
	r.opening = o
	r.wait()
	go func() {
		defer close(o.done)
		o.a, o.err = r.h.attach(ctx, o.d)
	}()
}

// wait is patient, again, with the session that is being opened.
func (r *race) wait() {
	if r.opening != nil {
		r.silent = false
		r.head.Stop()
		r.patience.Reset(max(r.h.patient(longestSilence), silences*r.opening.d.took))
	}
}

// hurried reports whether another I/O unit is wanted: none has a session being
// opened, or it has been silent for long.
func (r *race) hurried() bool { return r.opening == nil || r.silent }

// next dials the next I/O unit, with a head start.
func (r *race) next() {
	r.dial()
	r.head.Reset(r.h.patient(headStart))
}

// result is closed when the session has been opened, or not.
func (r *race) result() <-chan struct{} {
	if r.opening == nil {
		return nil
	}
	return r.opening.done
}

// opened returns the session, or an error if there is no point in going on.
func (r *race) opened(ctx context.Context, o *attempt) (*attachment, error) {
	defer o.cancel(nil)
	switch {
	case ctx.Err() != nil:
		if o.a != nil {
			r.h.retire(o.a, session.CodeShuttingDown, "the host is shutting down")
		}
		return nil, nil
	case o.err == nil:
		r.h.note(o.d.unit, nil)
		return o.a, nil
	case errors.Is(o.err, ErrNetdeviceGone):
		r.h.note(o.d.unit, o.err)
		return nil, o.err
	}
	r.failed(o.d.unit, o.err)
	r.proceed()
	return nil, nil
}

// failed notes why there is no session with an I/O unit.
func (r *race) failed(unit int, err error) {
	if r.dctx.Err() != nil {
		return
	}
	r.h.note(unit, err)
	if isPermanent(err) {
		r.permanent = append(r.permanent, err)
	}
	if restarts(err) {
		r.away = append(r.away, unit)
	} else {
		r.restarting = false
	}
	r.h.cfg.Log.Log(r.dctx, r.h.level(unit, err), "no session", "iounit", r.h.cfg.IOUnits[unit], "reason", err)
}

// proceed goes on to the next I/O unit, if one is wanted.
func (r *race) proceed() {
	if r.dctx.Err() == nil && r.hurried() && len(r.ready) == 0 {
		r.next()
	}
}

// dismiss closes the connections that are not needed.
func (r *race) dismiss() {
	for range r.dialing {
		r.ready = append(r.ready, <-r.dials)
	}
	for _, d := range r.ready {
		if d.client != nil {
			d.client.Close()
		}
	}
}

// attach opens a session with an I/O unit that was dialled. A MAC address that
// the I/O unit refuses is given up if it can be.
func (h *Host) attach(ctx context.Context, d dialled) (*attachment, error) {
	a, err := h.open(ctx, d, false)
	if err != nil && h.dev.giveUpMAC(err) {
		heard := d.heard
		if d = h.dial(ctx, d.unit, nil); d.err != nil {
			return nil, d.err
		}
		d.heard = heard
		a, err = h.open(ctx, d, false)
	}
	return a, err
}

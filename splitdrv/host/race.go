package host

import (
	"context"
	"errors"
	"time"

	"github.com/splitnic/splitnic/internal/wake"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// race carries out the actions of an uplink.Race. Only one goroutine uses it.
type race struct {
	*uplink.Race
	*opener
	dctx      context.Context // context of dials
	dials     chan dialled
	dialing   int
	answered  chan struct{}      // signaled when a machine has answered a dial; capacity one
	heard     chan struct{}      // signaled after each answer while a session is opened; capacity one
	ready     map[string]dialled // connections that are not needed yet
	opened    chan opened
	overtake  context.CancelCauseFunc // ends the opening of a session; nil: none is being opened
	retry     *uplink.Backoff
	permanent map[string]error // by I/O unit
	won       bool             // there is a session
}

// opened is the result of opening a session.
type opened struct {
	addr string
	a    *attachment
	err  error
}

// reach tries the I/O units in the given order and returns the first session that is opened.
// If all fail, it reports whether all of them may be restarting. It returns an error if
// trying again does not help.
func (o *opener) reach(ctx context.Context, order []string, retry *uplink.Backoff) (*attachment, bool, error) {
	dctx, cancel := context.WithCancel(ctx)
	r := &race{
		Race: uplink.NewRace(order, o.cfg.Patience, retry), opener: o, dctx: dctx, retry: retry,
		dials:    make(chan dialled),
		answered: make(chan struct{}, 1), heard: make(chan struct{}, 1), ready: make(map[string]dialled),
		opened: make(chan opened), permanent: make(map[string]error),
	}
	defer func() {
		cancel()
		o.retired.add(r.dismiss)
	}()
	a, err := r.run(ctx)
	r.won = a != nil
	if a != nil || err != nil || ctx.Err() != nil {
		return a, false, err
	}
	if err := o.dev.dropOldCarrier(); errors.Is(err, ErrNetdeviceGone) {
		return nil, false, err
	}
	permanent := len(r.permanent) == len(order)
	o.sessions.notePermanent(permanent)
	if permanent && o.sessions.ever() == 0 && !o.cfg.Persevere {
		errs := make([]error, 0, len(order))
		for _, unit := range order {
			errs = append(errs, r.permanent[unit])
		}
		return nil, false, errors.Join(errs...)
	}
	return nil, r.Restarting(), nil
}

// run returns when a session is opened, when no I/O unit is left to try, or when ctx is
// done. It returns an error only if the netdevice was deleted.
func (r *race) run(ctx context.Context) (*attachment, error) {
	actions := r.Start(time.Now())
	for {
		for _, a := range actions {
			r.do(ctx, a)
		}
		if r.overtake == nil && (r.Over() || ctx.Err() != nil) {
			return nil, nil
		}
		select {
		case <-at(r.Wake()):
			actions = r.Tick(time.Now())
		case <-r.answered:
			actions = r.Answered(time.Now())
		case <-r.heard:
			actions = r.Heard(time.Now())
		case d := <-r.dials:
			r.dialing--
			if d.err != nil {
				r.failed(d.addr, d.err)
				actions = r.DialFailed(time.Now(), d.addr, restarts(d.err))
			} else {
				if older, is := r.ready[d.addr]; is {
					older.client.Close()
				}
				r.ready[d.addr] = d
				actions = r.Dialled(time.Now(), d.addr, d.took)
			}
		case o := <-r.opened:
			r.overtake(nil)
			r.overtake = nil
			switch {
			case ctx.Err() != nil:
				if o.a != nil {
					r.retired.end(o.a, session.CodeShuttingDown, errStopping.Error())
				}
				return nil, nil
			case o.err == nil:
				r.sessions.tried(o.addr, nil)
				return o.a, nil
			case errors.Is(o.err, ErrNetdeviceGone):
				r.sessions.tried(o.addr, o.err)
				return nil, o.err
			}
			r.failed(o.addr, o.err)
			actions = r.OpenFailed(time.Now(), restarts(o.err))
		}
	}
}

// do carries out an action, unless ctx is done.
func (r *race) do(ctx context.Context, a uplink.RaceAction) {
	if ctx.Err() != nil {
		return
	}
	switch a.Do {
	case uplink.Dial:
		r.dialing++
		go func() { r.dials <- r.dial(r.dctx, a.Unit, r.answered) }()
	case uplink.Open:
		d := r.ready[a.Unit]
		delete(r.ready, a.Unit)
		d.heard = func() { wake.Up(r.heard) }
		ctx, cancel := context.WithCancelCause(ctx)
		r.overtake = cancel
		go func() {
			s, err := r.attach(ctx, d)
			r.opened <- opened{d.addr, s, err}
		}()
	case uplink.Abandon:
		r.overtake(errOvertaken)
	}
}

// failed records why an I/O unit has failed.
func (r *race) failed(addr string, err error) {
	if r.dctx.Err() != nil {
		return
	}
	r.sessions.tried(addr, err)
	r.retry.Advise(retryAfter(err))
	if isPermanent(err) {
		r.permanent[addr] = err
	}
	r.cfg.Log.Log(r.dctx, r.sessions.level(addr, err), "no session", "iounit", addr, "error", err)
}

// dismiss closes the connections that were not needed. If another I/O unit is used, it tells
// the I/O units so, because they report connections that end without a bye.
func (r *race) dismiss() {
	for range r.dialing {
		r.dismissOne(<-r.dials)
	}
	for _, d := range r.ready {
		r.dismissOne(d)
	}
}

func (r *race) dismissOne(d dialled) {
	switch {
	case d.client == nil:
	case r.won:
		_ = d.client.Bye(session.CodeElsewhere, "the host uses another connection") // it may be gone
	default:
		d.client.Close()
	}
}

package host

import (
	"context"
	"errors"
	"time"

	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// race carries out an uplink.Race. It belongs to one goroutine.
type race struct {
	*uplink.Race
	*opener
	dctx      context.Context // of dials
	dials     chan dialled
	dialing   int
	answered  chan struct{}   // told that a machine has answered a dial; of capacity one
	heard     chan struct{}   // told of each answer in opening; of capacity one
	ready     map[int]dialled // not needed yet
	opening   *attempt        // nil: none
	permanent []error
}

// attempt is a session that is being opened.
type attempt struct {
	unit   int
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when there are the following
	a      *attachment
	err    error
}

// race tries the I/O units in that order and returns the first session that comes
// about. If none does it reports whether all of them may just be restarting, and why
// there is no point in trying again with some. err is that the netdevice is gone.
func (o *opener) race(
	ctx context.Context, order []int, retry *uplink.Backoff,
) (a *attachment, restarting bool, permanent []error, err error) {
	dctx, cancel := context.WithCancel(ctx)
	r := &race{
		Race: uplink.NewRace(order, o.cfg.Patience, retry), opener: o, dctx: dctx, dials: make(chan dialled),
		answered: make(chan struct{}, 1), heard: make(chan struct{}, 1), ready: make(map[int]dialled),
	}
	a, err = r.run(ctx)
	cancel()
	o.retired.add(r.dismiss)
	return a, r.Restarting(), r.permanent, err
}

// run returns when there is a session, or no I/O unit left to try, or ctx is done,
// or the netdevice is gone, which is the error.
func (r *race) run(ctx context.Context) (*attachment, error) {
	actions := r.Start(time.Now())
	for {
		for _, a := range actions {
			r.do(ctx, a)
		}
		if r.opening == nil && (r.Over() || ctx.Err() != nil) {
			return nil, nil
		}
		var opened chan struct{}
		if r.opening != nil {
			opened = r.opening.done
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
				r.failed(d.unit, d.err)
				actions = r.DialFailed(time.Now(), d.unit, restarts(d.err))
			} else {
				r.ready[d.unit] = d
				actions = r.Dialled(time.Now(), d.unit, d.took)
			}
		case <-opened:
			o := r.opening
			r.opening = nil
			o.cancel(nil)
			switch {
			case ctx.Err() != nil:
				if o.a != nil {
					r.retired.end(o.a, session.CodeShuttingDown, errStopping.Error())
				}
				return nil, nil
			case o.err == nil:
				r.sessions.tried(o.unit, nil)
				return o.a, nil
			case errors.Is(o.err, ErrNetdeviceGone):
				r.sessions.tried(o.unit, o.err)
				return nil, o.err
			}
			r.failed(o.unit, o.err)
			actions = r.OpenFailed(time.Now(), restarts(o.err))
		}
	}
}

// do carries out what was decided, unless ctx is done.
func (r *race) do(ctx context.Context, a uplink.Action) {
	switch {
	case ctx.Err() != nil:
	case a.Do == uplink.Dial:
		r.dialing++
		go func() { r.dials <- r.dial(r.dctx, a.Unit, r.answered) }()
	case a.Do == uplink.Open:
		d := r.ready[a.Unit]
		delete(r.ready, a.Unit)
		d.heard = func() { signal(r.heard) }
		ctx, cancel := context.WithCancelCause(ctx)
		o := &attempt{unit: a.Unit, cancel: cancel, done: make(chan struct{})}
		r.opening = o
		go func() {
			defer close(o.done)
			o.a, o.err = r.attach(ctx, d)
		}()
	case a.Do == uplink.Abandon:
		r.opening.cancel(errOvertaken)
	}
}

// failed notes why there is no session with an I/O unit.
func (r *race) failed(unit int, err error) {
	if r.dctx.Err() != nil {
		return
	}
	r.sessions.tried(unit, err)
	if isPermanent(err) {
		r.permanent = append(r.permanent, err)
	}
	r.cfg.Log.Log(r.dctx, r.sessions.level(unit, err), "no session", "iounit", r.cfg.IOUnits[unit], "reason", err)
}

// dismiss closes the connections that are not needed.
func (r *race) dismiss() {
	for range r.dialing {
		d := <-r.dials
		r.ready[d.unit] = d
	}
	for _, d := range r.ready {
		if d.client != nil {
			d.client.Close()
		}
	}
}

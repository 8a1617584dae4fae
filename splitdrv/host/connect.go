package host

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// connect is Run without those who follow the netdevice: it finds an I/O unit that
// can be had, serves the session with it to its end, and begins again.
func (h *Host) connect(ctx context.Context) error {
	retry := h.cfg.backoff()
	order := h.units.After(uplink.None)
	defer close(h.switching.over)
	for {
		a, restarting, err := h.reach(ctx, order, &retry)
		if err != nil {
			return err
		}
		pause := time.Duration(0)
		switch {
		case a != nil:
			e := h.serve(ctx, a)
			if errors.Is(e.err, ErrNetdeviceGone) {
				return e.err
			}
			order = h.units.StartingWith(e.next, e.unit)
			if e.next == uplink.None {
				pause = retry.Ended(e.lasted)
			}
		case restarting:
			order, pause = h.units.After(uplink.None), retry.Restarting()
		default:
			order, pause = h.units.After(uplink.None), retry.Failed()
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

func (c *Config) backoff() uplink.Backoff {
	return uplink.Backoff{Min: c.RetryMin, Max: c.RetryMax, Rand: c.Rand}
}

// at is when a decision is due; never if that is zero.
func at(due time.Time) <-chan time.Time {
	if due.IsZero() {
		return nil
	}
	return time.After(time.Until(due))
}

// race carries out an uplink.Race. It belongs to one goroutine.
type race struct {
	*uplink.Race
	h         *Host
	ctx       context.Context // of dials
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

// dialled is an I/O unit that answers and is the right one, or why not.
type dialled struct {
	unit   int
	client *session.Client
	took   time.Duration
	heard  func() // called when there was an answer in opening the session; may be nil
	err    error
}

// reach tries the I/O units in that order and returns the first session that
// comes about. If none does it reports whether all of them may just be
// restarting. It returns an error if there is no point in trying again.
func (h *Host) reach(ctx context.Context, order []int, retry *uplink.Backoff) (*attachment, bool, error) {
	dctx, cancel := context.WithCancel(ctx)
	r := &race{
		Race: uplink.NewRace(order, h.cfg.Patience, retry), h: h, ctx: dctx, dials: make(chan dialled),
		answered: make(chan struct{}, 1), heard: make(chan struct{}, 1), ready: make(map[int]dialled),
	}
	defer func() {
		cancel()
		h.retired.add(r.dismiss)
	}()
	a, err := r.run(ctx)
	if a != nil || err != nil || ctx.Err() != nil {
		return a, false, err
	}
	if err := h.dev.dropOldCarrier(); errors.Is(err, ErrNetdeviceGone) {
		return nil, false, err
	}
	if len(r.permanent) == len(h.units) && h.ever() == 0 {
		return nil, false, errors.Join(r.permanent...)
	}
	return nil, r.Restarting(), nil
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
					r.h.retire(o.a, session.CodeShuttingDown, "the host is shutting down")
				}
				return nil, nil
			case o.err == nil:
				r.h.tried(o.unit, nil)
				return o.a, nil
			case errors.Is(o.err, ErrNetdeviceGone):
				r.h.tried(o.unit, o.err)
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
		go func() { r.dials <- r.h.dial(r.ctx, a.Unit, r.answered) }()
	case a.Do == uplink.Open:
		d := r.ready[a.Unit]
		delete(r.ready, a.Unit)
		d.heard = func() { signal(r.heard) }
		ctx, cancel := context.WithCancelCause(ctx)
		o := &attempt{unit: a.Unit, cancel: cancel, done: make(chan struct{})}
		r.opening = o
		go func() {
			defer close(o.done)
			o.a, o.err = r.h.attach(ctx, d)
		}()
	case a.Do == uplink.Abandon:
		r.opening.cancel(errOvertaken)
	}
}

// failed notes why there is no session with an I/O unit.
func (r *race) failed(unit int, err error) {
	if r.ctx.Err() != nil {
		return
	}
	r.h.tried(unit, err)
	if isPermanent(err) {
		r.permanent = append(r.permanent, err)
	}
	r.h.cfg.Log.Log(r.ctx, r.h.level(unit, err), "no session", "iounit", r.h.units[unit], "reason", err)
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

// dial connects to an I/O unit and authenticates it. answered, which may be nil, is
// told when its machine has answered, if there is room.
func (h *Host) dial(ctx context.Context, unit int, answered chan<- struct{}) dialled {
	began := time.Now()
	c, err := session.Dial(ctx, h.units[unit], session.ClientConfig{
		Security: h.cfg.Security, PeerTimeout: h.cfg.Messaging.PeerTimeout, HandshakeTimeout: h.cfg.HandshakeTimeout,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err == nil {
				signal(answered)
			}
			return c, err
		},
	})
	return dialled{unit: unit, client: c, took: time.Since(began), err: err}
}

// tried makes an I/O unit the one that was tried last, in vain if there is an
// error.
func (h *Host) tried(unit int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.session.addr = h.units[unit]
	if err != nil {
		h.tally.lastErr = err
		h.countEnd(err)
		h.tally.attempts++
	}
}

// level is the level at which to log why there is no session with an I/O unit: an
// administrator wants to read the same failure once, until there was a session.
func (h *Host) level(unit int, err error) slog.Level {
	f := failureOf(err)
	h.mu.Lock()
	defer h.mu.Unlock()
	if last, ok := h.tally.warned[unit]; ok && last == f {
		return slog.LevelDebug
	}
	h.tally.warned[unit] = f
	return slog.LevelWarn
}

// ever is how many sessions there have been.
func (h *Host) ever() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tally.sessions
}

package host

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/splitnic/splitnic/splitdrv/host/uplink"
)

// Run connects to the I/O units in turn and keeps the netdevice working until ctx is done;
// then it returns nil. It returns an error immediately if there was no session yet and
// waiting does not help: every I/O unit refuses for a permanent reason, such as a key that
// is not trusted, or this process may not lock enough memory. See also Config.Persevere.
func (h *Host) Run(ctx context.Context) error {
	if err := h.dev.begin(); err != nil {
		return errors.Join(err, h.direct.Close())
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var workers sync.WaitGroup
	workers.Go(func() {
		if err := h.dev.watch(ctx); err != nil {
			cancel(err)
		}
	})
	workers.Go(func() { h.dev.follow(ctx) })
	workers.Go(func() { h.dev.solicit(ctx) })
	workers.Go(func() { h.units.Run(ctx) })
	err := h.connect(ctx)
	h.direct.Stop(errStopping.Error())
	h.background.Wait()
	h.retired.wait()
	if gone := context.Cause(ctx); errors.Is(gone, ErrNetdeviceGone) {
		err = gone
	}
	cancel(nil)
	workers.Wait()
	h.dev.saveAgreement()
	return errors.Join(err, h.direct.Close())
}

// connect is the loop of Run: it opens a session with an I/O unit, serves it until its end,
// and begins again.
func (h *Host) connect(ctx context.Context) error {
	retry := h.cfg.backoff()
	first, after := uplink.None, uplink.None
	defer close(h.switching.over)
	for {
		next := pause{reloaded: h.cfg.Security.Changed(), commands: h.commands}
		units, relisted, err := h.known(ctx)
		if err != nil || ctx.Err() != nil {
			return err
		}
		a, restarting, err := h.opener.reach(ctx, units.StartingWith(first, after), &retry)
		if err != nil {
			return err
		}
		next.relisted = relisted
		lasts := time.Duration(0)
		first, after = uplink.None, uplink.None
		if a == nil {
			h.units.Refresh()
		}
		switch {
		case a != nil:
			e := h.serve(ctx, a)
			if errors.Is(e.err, ErrNetdeviceGone) {
				return e.err
			}
			h.forgetCommand() // it was before the session
			first, after = e.next, e.addr
			if e.next == uplink.None {
				lasts = retry.Ended(e.lasted)
			}
		case restarting:
			lasts = retry.Restarting()
		default:
			lasts = retry.Failed()
		}
		if lasts > 0 {
			first = next.wait(ctx, lasts)
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// known waits until there are I/O units to try, and returns them with a channel that is
// closed when they change. It returns none when ctx is done. While DNS names none, the
// netdevice loses the carrier that it may have from a previous process.
func (h *Host) known(ctx context.Context) (uplink.Candidates, <-chan struct{}, error) {
	for {
		units, asked, changed := h.units.Units()
		if len(units) > 0 {
			return units, changed, nil
		}
		if asked {
			if err := h.dev.dropOldCarrier(); errors.Is(err, ErrNetdeviceGone) {
				return nil, nil, err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, nil, nil
		}
	}
}

// pause is a pause between two rounds of all I/O units. An I/O unit can make it long, by the
// time for which it says that it refuses sessions. What may help at once ends it: another
// list of I/O units, a reload of keys and trust, a command.
type pause struct {
	relisted <-chan struct{} // closed when the list of I/O units has changed
	reloaded <-chan struct{} // closed when keys and trust have changed
	commands <-chan string   // the I/O unit with which to begin, or uplink.None
}

// wait returns after the given time, when the pause has been ended, or when ctx is done. It
// returns the I/O unit with which a command wants to begin, or uplink.None.
func (p *pause) wait(ctx context.Context, d time.Duration) (first string) {
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-over.C:
	case <-p.relisted:
	case <-p.reloaded:
	case first = <-p.commands:
		return first
	case <-ctx.Done():
	}
	return uplink.None
}

// tryNow ends the pause, or the next one if there is none, so that the I/O units are tried at
// once, beginning with the one at addr unless that is uplink.None.
func (h *Host) tryNow(addr string) error {
	if addr != uplink.None {
		units, _, _ := h.units.Units()
		if _, err := units.Choose(addr, uplink.None); err != nil {
			return err
		}
	}
	select {
	case h.commands <- addr:
	default: // another command has ended it
	}
	return ErrNoSession
}

// forgetCommand forgets a command that has not ended a pause.
func (h *Host) forgetCommand() {
	select {
	case <-h.commands:
	default:
	}
}

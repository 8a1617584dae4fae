package host

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/splitnic/splitnic/splitdrv/host/uplink"
)

// Run connects to the I/O units in turn and keeps the netdevice working until
// ctx is done, when it returns nil. It returns an error at once if no session
// has ever come about and every I/O unit refuses for a reason that waiting
// does not help, such as a key that is not trusted, or this process may not
// lock the memory that it takes; but see Config.Persevere.
func (h *Host) Run(ctx context.Context) error {
	if err := h.dev.begin(); err != nil {
		return errors.Join(err, h.direct.close())
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
	err := h.connect(ctx)
	h.direct.stop(errStopping.Error())
	h.background.Wait()
	h.retired.wait()
	if gone := context.Cause(ctx); errors.Is(gone, ErrNetdeviceGone) {
		err = gone
	}
	cancel(nil)
	workers.Wait()
	h.dev.saveAgreement()
	return errors.Join(err, h.direct.close())
}

// connect is Run without those who follow the netdevice: it finds an I/O unit that
// can be had, serves the session with it to its end, and begins again.
func (h *Host) connect(ctx context.Context) error {
	retry := h.cfg.backoff()
	units := h.cfg.units()
	order := units.After(uplink.None)
	defer close(h.switching.over)
	for {
		a, restarting, err := h.opener.reach(ctx, order, &retry)
		if err != nil {
			return err
		}
		pause := time.Duration(0)
		order = units.After(uplink.None)
		switch {
		case a != nil:
			e := h.serve(ctx, a)
			if errors.Is(e.err, ErrNetdeviceGone) {
				return e.err
			}
			order = units.StartingWith(e.next, e.addr)
			if e.next == uplink.None {
				pause = retry.Ended(e.lasted)
			}
		case restarting:
			pause = retry.Restarting()
		default:
			pause = retry.Failed()
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

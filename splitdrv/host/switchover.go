package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/splitnic/splitnic/splitdrv/host/mirror"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

var (
	errBusy     = errors.New("another switch-over is under way")
	errStopping = errors.New("the host is shutting down")
)

// switching is how requests to go over to another I/O unit get to serve.
type switching struct {
	requests  chan *switchRequest
	over      chan struct{} // closed when nobody handles requests any more
	commanded sync.Mutex    // held while a command is carried out
	// preparing has a token for each I/O unit, which is with whoever makes a session
	// on standby there: it has one of a host at most.
	preparing []chan struct{}
}

// switchRequest is to go over to another I/O unit.
type switchRequest struct {
	unit    int
	to      *attachment // on standby; nil: make it afterwards
	reason  uplink.Reason
	started time.Time
	done    chan error // of capacity one
	unsent  *messaging.Remains
}

// result is what became of the request when a is in use.
func (o *switchRequest) result(a *attachment) error {
	if a.unit == o.unit {
		return nil
	}
	return fmt.Errorf("that I/O unit could not be had; there is a session with the one at %s", a.addr)
}

// Failover goes over from the I/O unit in use to the one at addr, one of those
// configured, or to the next one if addr is empty, and says how that went. The
// second session is made before the first one ends, if the I/O unit has standby
// sessions; otherwise afterwards. With an error the first one stays in use, or
// has been lost meanwhile. It may be called from any goroutine.
func (h *Host) Failover(ctx context.Context, addr string) (uplink.Failover, error) {
	if err := h.command(ctx, addr); err != nil {
		return uplink.Failover{}, fmt.Errorf("fail over: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return *h.failovers.Status().Last, nil
}

func (h *Host) command(ctx context.Context, addr string) (err error) {
	o := &switchRequest{reason: uplink.ReasonCommand, started: time.Now(), done: make(chan error, 1)}
	if !h.switching.commanded.TryLock() {
		return errBusy
	}
	defer h.switching.commanded.Unlock()
	h.mu.Lock()
	connected, inUse := h.session.conn != nil, h.session.unit
	h.mu.Unlock()
	if o.unit, err = h.units.Choose(addr, inUse); err != nil {
		return err
	}
	if !connected {
		return ErrNoSession
	}
	// Held until the session has been gone over to: one on standby with the same I/O
	// unit, made meanwhile, would take its place there.
	release, err := h.reservePreparing(ctx, o.unit)
	if err != nil {
		return err
	}
	defer release()
	o.to, err = h.prepareAlone(ctx, o.unit)
	if err != nil && !errors.Is(err, uplink.ErrNoStandby) {
		return fmt.Errorf("the I/O unit at %s: %w", h.units[o.unit], err)
	}
	return h.submit(ctx, o)
}

// submit has serve handle a request.
func (h *Host) submit(ctx context.Context, o *switchRequest) error {
	var err error
	select {
	case h.switching.requests <- o:
		select { // from here on it ends soon
		case err := <-o.done:
			return err
		case <-h.switching.over:
			return errStopping
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-h.switching.over:
		err = errStopping
	}
	if o.to != nil {
		h.retire(o.to, session.CodeShuttingDown, notNeeded)
	}
	return err
}

// prepare makes a session on standby with an I/O unit, or takes the one that
// there is.
func (h *Host) prepare(ctx context.Context, unit int) (*attachment, error) {
	release, err := h.reservePreparing(ctx, unit)
	if err != nil {
		return nil, err
	}
	defer release()
	return h.prepareAlone(ctx, unit)
}

// reservePreparing waits until nobody else makes a session on standby with an I/O
// unit, and keeps others from it until release is called.
func (h *Host) reservePreparing(ctx context.Context, unit int) (release func(), err error) {
	select {
	case h.switching.preparing[unit] <- struct{}{}:
		return func() { <-h.switching.preparing[unit] }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// prepareAlone is prepare for who has reserved that.
func (h *Host) prepareAlone(ctx context.Context, unit int) (*attachment, error) {
	if b := h.take(unit); b != nil {
		return b, nil
	}
	d := h.dial(ctx, unit, nil)
	if d.err != nil {
		return nil, d.err
	}
	return h.open(ctx, d, true)
}

// switchOver handles a request and reports whether the session in use is to end, as
// e says, which has no error if the other one takes over at once.
func (h *Host) switchOver(ctx context.Context, a *attachment, o *switchRequest, e *ending) bool {
	if o.unit == a.unit {
		if o.to != nil {
			h.retire(o.to, session.CodeShuttingDown, notNeeded)
		}
		o.done <- fmt.Errorf("%s is the I/O unit in use", a.addr)
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, h.cfg.handover())
	defer cancel()
	h.dev.setPhase(mirror.Changing)
	paused := time.Now()
	err := a.conn.Pause(ctx)
	if err == nil && o.to != nil {
		err = h.setPort(ctx, o.to)
	}
	if err != nil && o.to != nil {
		a.conn.Resume()
		h.dev.setPhase(mirror.Established)
		h.retire(o.to, session.CodeFailed, err.Error())
		o.done <- err
		return false
	}
	e.request, e.reason = o, o.reason
	e.code, e.text = session.CodeShuttingDown, "the host goes over to another I/O unit"
	if o.to == nil {
		// Whether or not everything has arrived: it has had its time.
		e.next = o.unit
		e.err = fmt.Errorf("switched over to the I/O unit at %s", h.units[o.unit])
		return true
	}
	// The LAN sends to the other I/O unit by now, where frames wait. What is still
	// on its way through this one comes soon.
	runDry(ctx, a.conn)
	o.unsent = a.conn.Stop()
	o.unsent.Uncertain = 0 // Pause has waited for them
	h.retire(a, e.code, e.text)
	h.cfg.Log.Info("switched over", "iounit", a.addr, "to", o.to.addr, "reason", o.reason)
	h.beginFailover(a, e, paused, o.unsent)
	return true
}

// runDry waits until nothing has come from the peer for a moment, and not for
// long if that does not happen.
func runDry(ctx context.Context, conn *messaging.Conn) {
	const moment, most = 3 * time.Millisecond, 50 * time.Millisecond
	tick := time.NewTicker(moment)
	defer tick.Stop()
	for seen, end := received(conn), time.Now().Add(most); time.Now().Before(end); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := received(conn)
		if now == seen {
			return
		}
		seen = now
	}
}

// received is how many frames have come from the peer.
func received(conn *messaging.Conn) (n uint64) {
	for _, c := range conn.Stats().Channels {
		n += c.RxFrames
	}
	return n
}

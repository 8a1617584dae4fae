package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/splitnic/splitnic/splitdrv/host/mirror"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

var (
	errNoOther  = errors.New("there is no other I/O unit")
	errBusy     = errors.New("another switch-over is under way")
	errStopping = errors.New("the host is shutting down")
)

// order is to go over to another I/O unit.
type order struct {
	unit    int
	to      *attachment // on standby; nil: make it afterwards
	reason  Reason
	started time.Time
	paused  time.Time  // when frames stopped
	done    chan error // of capacity one
	remains *messaging.Remains
}

// result is what became of the order when a is in use.
func (o *order) result(a *attachment) error {
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
func (h *Host) Failover(ctx context.Context, addr string) (Failover, error) {
	o := &order{reason: ReasonCommand, started: time.Now(), done: make(chan error, 1)}
	err := h.order(ctx, addr, o)
	if err != nil {
		return Failover{}, fmt.Errorf("fail over: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return *h.failovers.last, nil
}

func (h *Host) order(ctx context.Context, addr string, o *order) (err error) {
	if !h.commanded.TryLock() {
		return errBusy
	}
	defer h.commanded.Unlock()
	h.mu.Lock()
	connected, present := h.inUse != nil, h.present
	h.mu.Unlock()
	if o.unit, err = h.another(addr, present); err != nil {
		return err
	}
	if !connected {
		return ErrNoSession
	}
	o.to, err = h.prepare(ctx, o.unit)
	if err != nil && !errors.Is(err, errNoStandby) {
		return fmt.Errorf("the I/O unit at %s: %w", h.cfg.IOUnits[o.unit], err)
	}
	return h.submit(ctx, o)
}

// submit has serve carry out an order.
func (h *Host) submit(ctx context.Context, o *order) error {
	var err error
	select {
	case h.orders <- o:
		select { // from here on it ends soon
		case err := <-o.done:
			return err
		case <-h.over:
			return errStopping
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-h.over:
		err = errStopping
	}
	if o.to != nil {
		h.retire(o.to, session.CodeShuttingDown, "it is not needed")
	}
	return err
}

// prepare makes a session on standby with an I/O unit, or takes the one that
// there is.
func (h *Host) prepare(ctx context.Context, unit int) (*attachment, error) {
	select {
	case h.preparing[unit] <- struct{}{}:
		defer func() { <-h.preparing[unit] }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	h.mu.Lock()
	b := h.reserve
	if b != nil && b.unit == unit && b.lives() {
		h.reserve = nil
		h.mu.Unlock()
		return b, nil
	}
	h.mu.Unlock()
	d := h.dial(ctx, unit, nil)
	if d.err != nil {
		return nil, d.err
	}
	return h.open(ctx, d, true)
}

// obey carries out an order and reports whether the session in use is to end, as
// e says, which has no error if the other one has taken over.
func (h *Host) obey(ctx context.Context, a *attachment, o *order, e *ending) bool {
	if o.unit == a.unit {
		if o.to != nil {
			h.retire(o.to, session.CodeShuttingDown, "it is not needed")
		}
		o.done <- fmt.Errorf("%s is the I/O unit in use", a.addr)
		return false
	}
	e.order, e.reason = o, o.reason
	e.code, e.text = session.CodeShuttingDown, "the host goes over to another I/O unit"
	ctx, cancel := context.WithTimeout(ctx, h.handover())
	defer cancel()
	h.dev.setPhase(mirror.Changing)
	o.paused = time.Now()
	err := a.conn.Pause(ctx)
	if o.to == nil {
		// Whether or not everything has arrived: it has had its time.
		e.next = o.unit
		e.err = fmt.Errorf("switched over to the I/O unit at %s", h.cfg.IOUnits[o.unit])
		return true
	}
	if err == nil {
		err = h.setPort(ctx, o.to)
	}
	if err != nil {
		a.conn.Resume()
		h.dev.setPhase(mirror.Established)
		h.retire(o.to, session.CodeFailed, err.Error())
		o.done <- err
		return false
	}
	// The LAN sends to the other I/O unit by now, where frames wait. What is still
	// on its way through this one comes soon.
	runDry(ctx, a.conn)
	o.remains = a.conn.Stop()
	o.remains.Uncertain = 0 // Pause has waited for them
	h.retire(a, e.code, e.text)
	h.cfg.Log.Info("switched over", "iounit", a.addr, "to", o.to.addr, "reason", o.reason)
	h.switched(a, o)
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

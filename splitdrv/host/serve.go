package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host/mirror"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// How sessions follow each other, all on the goroutine of Run:
//
//  1. connect gives serve the first session that a race has opened
//  2. use puts it to use (activate): the netdevice is configured and has its carrier,
//     frames move, those first that the session before has left
//  3. it ends by itself: the carrier goes, and the session on standby, if there is
//     one, has its port set up (raise) and is the next one at once; otherwise serve
//     returns, and connect goes on with the next I/O unit
//  4. or by a request (switchOver): the session on standby that came with it is the
//     next one, and the carrier stays; without one, as if it had ended by itself

// ending is how the use of a session ended.
type ending struct {
	addr   string       // of its I/O unit
	err    error        // nil: the session of the request takes over at once
	code   session.Code // for the I/O unit
	text   string       // for the I/O unit
	reason uplink.Reason
	lasted time.Duration
	// request is by which the host goes over to another session, and next the I/O
	// unit to make that with; nil and uplink.None for none.
	request *switchRequest
	next    string
	spare   *attachment // was on standby
}

// serve uses an open session, and those that take over from it at once, to the
// end.
func (h *Host) serve(ctx context.Context, a *attachment) *ending {
	for {
		e := h.use(ctx, a)
		if e.err == nil {
			a = e.request.to
			continue
		}
		detected := time.Now()
		// The carrier first: nothing else is as urgent.
		h.sessions.useNone()
		e.err = errors.Join(e.err, h.dev.disconnected(h.cfg.handsOver(ctx)))
		h.cfg.OnState(Connecting)
		if !a.since.IsZero() {
			e.lasted = detected.Sub(a.since)
		}
		if ctx.Err() != nil || errors.Is(e.err, ErrNetdeviceGone) {
			h.direct.stop(errStopping.Error())
		} else {
			h.direct.use(nil)
		}
		if e.code == session.CodeShuttingDown && ctx.Err() != nil && !h.cfg.handsOver(ctx) {
			h.flush(a)
		}
		left := a.conn.Stop()
		h.retired.end(a, e.code, e.text)
		over := ctx.Err() != nil || errors.Is(e.err, ErrNetdeviceGone)
		if over || e.next != uplink.None {
			h.retired.endUnused(e.spare)
			e.spare = nil
		}
		if over {
			return e
		}
		h.sessions.tried(a.addr, e.err)
		h.cfg.Log.Warn("session ended", "iounit", a.addr, "error", e.err, "lasted", e.lasted.Round(time.Millisecond))
		h.sessions.failover(a, e.reason, e.request, detected, left)
		if e.spare == nil || !h.raise(ctx, e.spare) {
			return e
		}
		a = e.spare
	}
}

// flush has all pools of a session go, both sides', which this host ends.
func (h *Host) flush(a *attachment) {
	if err := a.conn.Flush(); err != nil {
		h.cfg.Log.Debug("pools end with their session", "iounit", a.addr, "error", err)
	}
}

// use activates a session and waits for its end, or for another to take over,
// when the ending has no error.
func (h *Host) use(ctx context.Context, a *attachment) *ending {
	e := &ending{addr: a.addr, next: uplink.None, code: session.CodeFailed}
	if e.err = h.activate(a); e.err != nil {
		e.text, e.reason = e.err.Error(), uplink.ReasonStart
		return e
	}
	rctx, cancel := context.WithCancel(ctx)
	h.background.Go(func() { h.standby.keep(rctx, a, &h.switching) })
	h.background.Go(func() { h.keepRenewed(rctx, a) })
	defer func() {
		if e.err != nil {
			e.spare = h.standby.take(uplink.None) // before its manager lets it go
		}
		cancel()
	}()
	for {
		select {
		case <-ctx.Done():
			e.code, e.text, e.err = session.CodeShuttingDown, errStopping.Error(), ctx.Err()
			if cause := context.Cause(ctx); errors.Is(cause, ErrNetdeviceGone) {
				e.code, e.text, e.err = session.CodeFailed, cause.Error(), cause
			}
			return e
		case <-a.client.Done():
			e.err, e.text = a.client.Err(), "the connection broke"
			e.reason = reasonOf(e.err)
			if !inGoodOrder(e.err) {
				a.conn.Abort(e.err)
			}
			return e
		case <-a.conn.Done():
			e.err = a.conn.Err()
			e.text, e.reason = e.err.Error(), reasonOf(e.err)
			if pe := (*messaging.ProtocolError)(nil); errors.As(e.err, &pe) {
				e.code = session.CodeProtocol
			}
			return e
		case o := <-h.switching.requests:
			if h.switchOver(ctx, a, o, e) {
				return e
			}
		}
	}
}

// activate makes an open session the one in use: the netdevice gets what was
// granted, the carrier follows the I/O unit, and frames move, those first that
// remain of the session before, if any.
func (h *Host) activate(a *attachment) error {
	watch := stopwatch{last: time.Now()}
	var unsent *messaging.Unsent
	// As one: what the I/O unit tells is in what it has granted, or comes after.
	h.dev.mu.Lock()
	err := h.dev.configure(&a.welcome)
	offloads := h.dev.is.offloads
	if err == nil {
		watch.lap("configure the netdevice")
		unsent = h.sessions.takeUnsent(offloads)
		a.since = time.Now()
		h.sessions.use(a)
		err = h.dev.setLink(a.welcome.Link)
	}
	h.dev.unlock()
	if err != nil {
		return err
	}
	h.cfg.OnState(Connected)
	w := &a.welcome
	if err := a.conn.StartData(h.direct.ports(w.Queues), unsent); err != nil {
		return err
	}
	watch.lap("start")
	a.stages = append(a.stages, watch.stages...)
	h.sessions.failedOver(a, offloads)
	h.dev.setPhase(mirror.Established)
	h.direct.use(a)
	h.dev.changed() // so that it settles after this
	h.cfg.Log.Info("session established", "iounit", a.addr, "name", w.Name, "session", w.Session,
		"mode", w.Mode, "mac", w.MAC, "mtu", w.MTU, "queues", w.Queues, "link", w.Link.Up)
	return nil
}

// raise has the I/O unit of a session on standby set the host's port up, if the
// netdevice is up, and tell the LAN. It ends the session if that fails.
func (h *Host) raise(ctx context.Context, b *attachment) bool {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.handover())
	defer cancel()
	err := h.setPort(ctx, b)
	if err != nil {
		h.cfg.Log.Warn("the session on standby cannot be used", "iounit", b.addr, "error", err)
		h.retired.end(b, session.CodeFailed, "it cannot be used")
	}
	return err == nil
}

func (h *Host) setPort(ctx context.Context, b *attachment) error {
	if !b.lives() {
		return errors.New("it has ended")
	}
	h.dev.mu.Lock()
	mac := b.welcome.MAC
	state, err := h.dev.State()
	h.dev.mu.Unlock()
	if err != nil {
		return h.dev.gone(err)
	}
	if !bytes.Equal(state.MAC, mac[:]) {
		return fmt.Errorf("it has MAC address %v, the netdevice %v", mac, state.MAC)
	}
	_, err = b.conn.Request(ctx, protocol.CfgLinkState, protocol.AppendLinkState(nil, protocol.LinkState{Up: state.Up}))
	return err
}

// switchOver handles a request and reports whether the session in use is to end, as
// e says, which has no error if the other one takes over at once.
func (h *Host) switchOver(ctx context.Context, a *attachment, o *switchRequest, e *ending) bool {
	if o.addr == a.addr {
		h.retired.endUnused(o.to)
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
		h.retired.end(o.to, session.CodeFailed, err.Error())
		o.done <- err
		return false
	}
	e.request, e.reason = o, o.reason
	e.code, e.text = session.CodeShuttingDown, "the host goes over to another I/O unit"
	if o.to == nil {
		// Whether or not everything has arrived: it has had its time.
		e.next = o.addr
		e.err = fmt.Errorf("switched over to the I/O unit at %s", o.addr)
		return true
	}
	// The LAN sends to the other I/O unit by now, where frames wait. What is still
	// on its way through this one comes soon.
	runDry(ctx, a.conn)
	left := a.conn.Stop()
	left.Uncertain = 0 // Pause has waited for them
	h.retired.end(a, e.code, e.text)
	h.cfg.Log.Info("switched over", "iounit", a.addr, "to", o.to.addr, "reason", o.reason)
	h.sessions.failover(a, e.reason, o, paused, left)
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

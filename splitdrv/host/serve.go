package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/splitnic/splitnic/splitdrv/host/mirror"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// How sessions follow each other, all on the goroutine of Run:
//
//  1. connect passes the first session that a race has opened to serve.
//  2. use activates it: the netdevice is configured and gets its carrier, and frames move,
//     beginning with those that the previous session had not sent.
//  3. If the session ends by itself, the netdevice loses its carrier. If there is a session
//     on standby, its LAN interface is set up (raise) and it is used next. Otherwise serve
//     returns, and connect tries the next I/O unit.
//  4. If the session ends by a request (switchOver) that has a session on standby, that
//     session is used next, and the carrier stays. Without one, the session ends as in 3.

// ending is the end of the use of a session.
type ending struct {
	addr   string       // address of its I/O unit
	err    error        // nil: the session of the request is used next
	code   session.Code // for the I/O unit
	text   string       // for the I/O unit
	reason uplink.Reason
	lasted time.Duration
	// request is the request to switch, nil for none; next is the I/O unit with which a
	// session is opened for it, or uplink.None.
	request *switchRequest
	next    string
	spare   *attachment // session that was on standby
}

// serve uses an open session, and then those on standby that replace it, until the end of
// the last one.
func (h *Host) serve(ctx context.Context, a *attachment) *ending {
	for {
		e := h.use(ctx, a)
		if e.err == nil {
			h.retired.endUnused(e.spare)
			a = e.request.to
			continue
		}
		detected := time.Now()
		// The carrier is removed first, because that is the most urgent.
		h.sessions.useNone()
		e.err = errors.Join(e.err, h.dev.disconnected(h.cfg.handsOver(ctx)))
		h.cfg.OnState(Connecting)
		if !a.since.IsZero() {
			e.lasted = detected.Sub(a.since)
		}
		if ctx.Err() != nil || errors.Is(e.err, ErrNetdeviceGone) {
			h.direct.Stop(errStopping.Error())
		} else {
			h.direct.Use(nil)
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
		if e.spare == nil || !h.opener.raise(ctx, e.spare) {
			return e
		}
		a = e.spare
	}
}

// flush ends all pools of a session, of both sides, before this host ends the session.
func (h *Host) flush(a *attachment) {
	if err := a.conn.Flush(); err != nil {
		h.cfg.Log.Debug("pools end with their session", "iounit", a.addr, "error", err)
	}
}

// use activates a session and waits for its end. If the ending has no error, another session
// replaces it.
func (h *Host) use(ctx context.Context, a *attachment) *ending {
	e := &ending{addr: a.addr, next: uplink.None, code: session.CodeFailed}
	on := newStandby(ctx, &h.opener, a, &h.switching)
	h.standby.Store(on)
	defer func() { e.spare = on.stop() }()
	if e.err = h.activate(a); e.err != nil {
		e.text, e.reason = e.err.Error(), uplink.ReasonStart
		return e
	}
	h.background.Go(on.keep)
	h.background.Go(func() { h.keepRenewed(on.ctx, a) })
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

// activate makes an open session the one in use: the netdevice gets the granted settings and
// the carrier of the I/O unit's link, and frames move, beginning with those that the
// previous session had not sent.
func (h *Host) activate(a *attachment) error {
	watch := stopwatch{last: time.Now()}
	var unsent *messaging.Unsent
	// Under one lock: a request of the I/O unit either changes the welcome before, or the
	// netdevice afterwards.
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
	if err := a.conn.StartData(h.direct.Ports(w.Queues), unsent); err != nil {
		return err
	}
	watch.lap("start")
	a.stages = append(a.stages, watch.stages...)
	h.sessions.failedOver(a, offloads)
	h.dev.setPhase(mirror.Established)
	a.direct.Conn, a.direct.MTU = a.conn, w.MTU
	h.direct.Use(&a.direct)
	h.dev.changed() // the follower then calls settled for this session
	h.cfg.Log.Info("session established", "iounit", a.addr, "name", w.Name, "session", w.Session,
		"mode", w.Mode, "mac", w.MAC, "mtu", w.MTU, "queues", w.Queues, "link", w.Link.Up)
	return nil
}

// switchOver handles a request to switch. It reports whether the session in use ends, and
// then sets e, whose err is nil if the session of the request replaces it.
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
		err = h.opener.setPort(ctx, o.to)
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
		// The switch goes on even if Pause has failed, because its time is over.
		e.next = o.addr
		e.err = fmt.Errorf("switched over to the I/O unit at %s", o.addr)
		return true
	}
	// The LAN sends to the other I/O unit now, where frames wait. Those in flight through
	// this one arrive soon.
	runDry(ctx, a.conn)
	left := a.conn.Stop()
	left.Uncertain = 0 // Pause has waited for them
	h.retired.end(a, e.code, e.text)
	h.cfg.Log.Info("switched over", "iounit", a.addr, "to", o.to.addr, "reason", o.reason)
	h.sessions.failover(a, e.reason, o, paused, left)
	return true
}

// runDry waits until no frames have arrived from the peer for a moment, but not for long.
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

// received returns the number of frames received from the peer.
func received(conn *messaging.Conn) (n uint64) {
	for _, c := range conn.Stats().Channels {
		n += c.RxFrames
	}
	return n
}

package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// ending is how a session ended.
type ending struct {
	unit   int
	err    error
	code   session.Code // for the I/O unit
	text   string       // for the I/O unit
	reason uplink.Reason
	lasted time.Duration
	// request is by which the host goes over to another session, and next the I/O
	// unit to make that with; nil and uplink.None for none.
	request *switchRequest
	next    int
	spare   *attachment // was on standby
}

// serve uses an open session, and those that take over from it at once, to the
// end.
func (h *Host) serve(ctx context.Context, a *attachment) *ending {
	unsent := h.takeUnsent()
	for {
		e := h.use(ctx, a, unsent)
		if e.err == nil {
			a, unsent = e.request.to, e.request.unsent // it has taken over
			continue
		}
		detected := time.Now()
		// The carrier first: nothing else is as urgent.
		e.err = errors.Join(e.err, h.disconnected(ctx))
		if !a.since.IsZero() {
			e.lasted = detected.Sub(a.since)
		}
		unsent = a.conn.Stop()
		h.retire(a, e.code, e.text)
		over := ctx.Err() != nil || errors.Is(e.err, ErrNetdeviceGone)
		if b := e.spare; b != nil && (over || e.next != uplink.None) {
			h.retire(b, session.CodeShuttingDown, notNeeded)
			e.spare = nil
		}
		if over {
			return e
		}
		h.tried(a.unit, e.err)
		h.cfg.Log.Warn("session ended", "iounit", a.addr, "reason", e.err, "lasted", e.lasted.Round(time.Millisecond))
		h.beginFailover(a, e, detected, unsent)
		h.keepUnsent(unsent)
		b := e.spare
		if b == nil {
			return e
		}
		if !h.raise(ctx, b) {
			h.retire(b, session.CodeFailed, "it cannot be used")
			return e
		}
		a, unsent = b, h.takeUnsent()
	}
}

// use activates a session and waits for its end, or for another to take over,
// when the ending has no error.
func (h *Host) use(ctx context.Context, a *attachment, unsent *messaging.Remains) *ending {
	e := &ending{unit: a.unit, next: uplink.None, code: session.CodeFailed}
	if e.err = h.activate(a, unsent); e.err != nil {
		e.text, e.reason = e.err.Error(), uplink.ReasonStart
		return e
	}
	rctx, cancel := context.WithCancel(ctx)
	h.background.Go(func() { h.keepStandby(rctx, a.unit) })
	h.background.Go(func() { h.keepRenewed(rctx, a) })
	defer func() {
		if e.err != nil {
			e.spare = h.take(uplink.None) // before its manager lets it go
		}
		cancel()
	}()
	for {
		select {
		case <-ctx.Done():
			e.code, e.text, e.err = session.CodeShuttingDown, "the host is shutting down", ctx.Err()
			if cause := context.Cause(ctx); errors.Is(cause, ErrNetdeviceGone) {
				e.code, e.text, e.err = session.CodeFailed, cause.Error(), cause
			}
			return e
		case <-a.client.Done():
			e.err, e.text = a.client.Err(), "the connection broke"
			if e.reason = reasonOf(e.err); e.reason != uplink.ReasonGoodbye {
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

// raise has the I/O unit of a session on standby set the host's port up, if the
// netdevice is up, and tell the LAN.
func (h *Host) raise(ctx context.Context, b *attachment) bool {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.handover())
	defer cancel()
	if err := h.setPort(ctx, b); err != nil {
		h.cfg.Log.Warn("the session on standby cannot be used", "iounit", b.addr, "reason", err)
		return false
	}
	return true
}

// handover bounds what has to be asked of I/O units to go from one to another.
func (c *Config) handover() time.Duration {
	if t := c.Messaging.PeerTimeout; t > 0 {
		return t
	}
	return time.Second
}

func (h *Host) setPort(ctx context.Context, b *attachment) error {
	if !b.lives() {
		return errors.New("it has ended")
	}
	state, err := h.cfg.Netdev.State()
	if err != nil {
		return h.dev.gone(err)
	}
	if mac := h.welcomed(b).MAC; !bytes.Equal(state.MAC, mac[:]) {
		return fmt.Errorf("it has MAC address %v, the netdevice %v", mac, state.MAC)
	}
	_, err = b.conn.Request(ctx, protocol.CfgLinkState, protocol.AppendLinkState(nil, protocol.LinkState{Up: state.Up}))
	return err
}

// welcomed is what the I/O unit has granted.
func (h *Host) welcomed(a *attachment) session.Welcome {
	h.mu.Lock()
	defer h.mu.Unlock()
	return a.welcome
}

package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host/mirror"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// follow makes the I/O unit follow what the administrator and the operating
// system do with the netdevice, in each session anew, until ctx is done.
func (h *Host) follow(ctx context.Context) {
	for {
		select {
		case <-h.dev.wake:
		case <-ctx.Done():
			return
		}
		for h.followOnce(ctx) && ctx.Err() == nil {
		}
		h.saveAgreement()
	}
}

// followOnce carries out one request and reports whether there may be more.
func (h *Host) followOnce(ctx context.Context) bool {
	conn, r, again, err := h.nextRequest()
	if err != nil {
		h.cfg.Log.Warn("the netdevice cannot be followed", "reason", err)
		return false
	}
	if r == nil {
		return again
	}
	data, err := conn.Request(ctx, r.Type, r.Data)
	status := protocol.CfgOK
	if refused := (*messaging.StatusError)(nil); errors.As(err, &refused) {
		status = refused.Status
	} else if err != nil {
		return false // the session has ended
	}
	if err := h.enterReply(conn, r, status, data); err != nil {
		h.cfg.Log.Warn("the netdevice cannot be set back", "what", r.Type, "reason", err)
		return false
	}
	return true
}

// nextRequest looks at the netdevice. It returns the request that is due in the
// present session, if one is, or whether something was set back.
func (h *Host) nextRequest() (conn *messaging.Conn, r *mirror.Request, again bool, err error) {
	d := h.dev
	d.mu.Lock()
	defer d.unlock()
	state, err := d.State()
	if err != nil {
		return nil, nil, false, err
	}
	r, changes := d.mirror.Next(&state, time.Now())
	if conn = h.conn(); conn == nil {
		r = nil
	}
	return conn, r, changes != mirror.Changes{}, d.apply(changes)
}

// enterReply enters the I/O unit's answer and sets the netdevice back when it
// refused.
func (h *Host) enterReply(conn *messaging.Conn, r *mirror.Request, status protocol.CfgStatus, data []byte) error {
	d := h.dev
	d.mu.Lock()
	defer d.unlock()
	if h.conn() != conn {
		return nil
	}
	state, err := d.State()
	if err != nil {
		return err
	}
	changes := d.mirror.Reply(r, status, data, &state, time.Now())
	if changes.Unsupported {
		h.cfg.Log.Info("the I/O unit does not follow the netdevice", "what", r.Type, "reason", status)
	}
	if changes.SessionMTU != 0 {
		conn.SetMTU(changes.SessionMTU)
	}
	return d.apply(changes)
}

// configure gives the netdevice what the I/O unit granted. The caller holds dev.mu.
func (h *Host) configure(a *attachment) error {
	d, w := h.dev, &a.welcome
	state, err := d.State()
	if err != nil {
		return d.gone(err)
	}
	if err := d.apply(d.mirror.Grant(&state, w.MAC, w.MTU, time.Now())); err != nil {
		return err
	}
	if d.is.offloads, err = d.SetOffloads(w.Offloads); err != nil {
		return d.gone(err)
	}
	if err := d.SetActive(w.Queues); err != nil {
		return d.gone(err)
	}
	err = h.steer(w)
	d.show()
	return d.gone(err)
}

// saveAgreement tells the next process what is agreed, when that has changed. One
// goroutine at a time may call it.
func (h *Host) saveAgreement() {
	if now := h.dev.shown.Load().agreed; now != h.dev.saved {
		h.dev.saved = now
		h.cfg.OnAgreement(now)
	}
}

// handsOver reports whether the netdevice goes to another process as it is.
func (h *Host) handsOver(ctx context.Context) bool {
	return h.cfg.KeepCarrier && ctx.Err() != nil && !errors.Is(context.Cause(ctx), ErrNetdeviceGone)
}

// Reset takes back what the administrator has set since the session began: the
// MAC address, the MTU, and the netdevice's own promiscuous and all-multicast
// settings. What programs and stacked devices need stays. Without a session the
// error wraps ErrNoSession. It may be called from any goroutine.
func (h *Host) Reset(ctx context.Context) error {
	conn, _, err := h.ask(ctx, protocol.CfgReset)
	if err == nil {
		err = h.reset(conn)
	}
	if err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	h.dev.changed()
	return nil
}

func (h *Host) reset(conn *messaging.Conn) error {
	d := h.dev
	d.mu.Lock()
	defer d.unlock()
	if h.conn() != conn {
		return ErrNoSession
	}
	state, err := d.State()
	if err != nil {
		return err
	}
	return d.apply(d.mirror.Reset(&state))
}
